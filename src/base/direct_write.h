// SPDX-License-Identifier: Apache-2.0
// Writes past the page cache: the disk reads the memory itself, and no page of the cache is taken from the job.
//
// Threads: may be called from any thread; it waits for the disk.
#pragma once

#include <cstdint>

#include "ckptfs/bytes.h"

namespace ckptfs {

// Of offsets, sizes and memory: the largest logical block of disks in use, and the page of most machines.
inline constexpr std::uint64_t kDirectAlignment = 4096;

// `file` is open with O_DIRECT; `offset` and the size of `bytes` are aligned. Bytes whose memory is not aligned as
// their place in the file is are copied on the way. 0, or an errno: EINVAL where the file wants another alignment.
[[nodiscard]] int write_direct(int file, const Payload& bytes, std::uint64_t offset);

}  // namespace ckptfs
