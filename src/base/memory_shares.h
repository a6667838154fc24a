// SPDX-License-Identifier: Apache-2.0
// How much of the memory budget each use may hold. Pure: values in, values out; counted in pool buffers.
//
// A use may always grow to its reserve, whatever the others do, and never beyond its cap. What no reserve claims goes
// to the first that asks. The rule that makes reserves hold: after every step there are at least as many free buffers
// as all uses together still lack to their reserves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ckptfs/buffer_pool.h"

namespace ckptfs {

// Below this the shares are too small to be useful: an S3 part is 5 MiB, a FUSE thread needs a buffer to listen.
inline constexpr std::uint64_t kSmallestMaxMemory = std::uint64_t{64} << 20;

struct MemoryShare {
    std::size_t reserve = 0;
    std::size_t cap = 0;
};

struct MemoryShares {
    std::size_t total = 0;
    // Indexed by MemoryUse.
    std::array<MemoryShare, kMemoryUses> of{};

    [[nodiscard]] const MemoryShare& operator[](MemoryUse use) const { return of[static_cast<std::size_t>(use)]; }
};

using BuffersInUse = std::array<std::size_t, kMemoryUses>;

// `max_memory` in bytes; less than kSmallestMaxMemory counts as that. `encodes`: files are compressed on the way.
[[nodiscard]] MemoryShares memory_shares(std::uint64_t max_memory, int fuse_threads, bool encodes = false);

// How many frames may wait for a disk at a time. A disk that hangs keeps what it has been given, so most of the memory
// for what programs write, and for what they read, is left. `caps`: by use.
[[nodiscard]] int frames_waiting_for_disk(const BuffersInUse& caps);

[[nodiscard]] bool may_take(const MemoryShares& shares, const BuffersInUse& in_use, MemoryUse use);
// Whether a held buffer may move from one use to another.
[[nodiscard]] bool may_recharge(const MemoryShares& shares, const BuffersInUse& in_use, MemoryUse from, MemoryUse to);

}  // namespace ckptfs
