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

// Opens a file for this user only; empty, with errno set, if the directory takes none.
[[nodiscard]] FileDescriptor open_unlinked(const std::string& directory);

// Returns 0 or an errno.
[[nodiscard]] int write_all(int file, Payload bytes, std::uint64_t offset);

// Returns 0 or an errno; ENODATA if the file ends before `target` is full.
[[nodiscard]] int read_all(int file, MutableByteSpan target, std::uint64_t offset);

}  // namespace ckptfs
