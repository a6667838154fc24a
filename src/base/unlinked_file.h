// SPDX-License-Identifier: Apache-2.0
// Files that never have a name, so that nothing is left behind however the process ends.
//
// Threads: all functions may be called from any thread; they wait for the disk.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_descriptor.h"
#include "ckptfs/bytes.h"

namespace ckptfs {

// For this user only; empty with errno set where the directory takes none.
[[nodiscard]] FileDescriptor open_unlinked(const std::string& directory);

// 0, or an errno.
[[nodiscard]] int write_all(int file, Payload bytes, std::uint64_t offset);

// 0, or an errno; ENODATA where the file ends before `target` is full.
[[nodiscard]] int read_all(int file, MutableByteSpan target, std::uint64_t offset);

}  // namespace ckptfs
