// SPDX-License-Identifier: Apache-2.0
// What to do when memory is short. Pure.
//
// Memory that is on its way to the store comes back by itself. What is stuck are parts that are not full, which may
// not leave below 5 MiB, and parts that are kept for patches only. As long as enough is on its way, waiting is the
// cheapest way to get more: the store, not memory, is what everything waits for. Otherwise, in this order: the largest
// unfinished part of 5 MiB or more leaves early; kept parts go to the disk; the unfinished part that has waited longest
// goes to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ckptfs {

// What one writer holds that will not leave by itself, in bytes.
struct StuckMemory {
    // Size of the part being filled, and how much of it is in memory.
    std::uint64_t open_part = 0;
    std::uint64_t open_in_memory = 0;
    bool may_leave_early = false;
    // Held by parts that have been sent and are kept for patches only.
    std::uint64_t kept_in_memory = 0;
    // Counts up from writer to writer, in the order in which they began to hold memory.
    std::uint64_t since = 0;
};

enum class Relief : std::uint8_t { kSendEarly, kSpillKept, kSpillOpen };

struct ReliefChoice {
    std::size_t writer = 0;
    Relief relief = Relief::kSendEarly;
    // How much memory that frees, at once or when it is in the store.
    std::uint64_t bytes = 0;
};

[[nodiscard]] std::optional<ReliefChoice> choose_relief(std::span<const StuckMemory> writers);

struct Shortage {
    // Buffers that are waited for: for new file data, or to send staged bytes.
    std::size_t writes_waiting = 0;
    std::size_t commits_waiting = 0;
    // Bytes held by both; of these, bytes on the way to the store, and bytes on the way to the disk or about to be.
    std::uint64_t held = 0;
    std::uint64_t leaving = 0;
    std::uint64_t spilling = 0;
    // Staged parts that are full and wait for memory to be sent.
    std::size_t staged_parts_waiting = 0;
};

[[nodiscard]] bool needs_relief(const Shortage& shortage);

}  // namespace ckptfs
