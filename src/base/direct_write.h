// SPDX-License-Identifier: Apache-2.0
// Writes that bypass the page cache: the disk reads the memory itself, and no page of the cache is taken from the job.
//
// Threads: may be called from any thread; it waits for the disk.
#pragma once

#include <cstdint>

#include "ckptfs/bytes.h"

namespace ckptfs {

// Alignment of offsets, sizes and memory, in bytes: the largest logical block of disks in use, and the page of most
// machines.
inline constexpr std::uint64_t kDirectAlignment = 4096;

// `file` is open with O_DIRECT; `offset` and the size of `bytes` are aligned. Bytes that are not aligned in memory as
// in the file are copied on the way. Returns 0 or an errno: EINVAL if the file wants another alignment.
[[nodiscard]] int write_direct(int file, const Payload& bytes, std::uint64_t offset);

}  // namespace ckptfs
