// SPDX-License-Identifier: Apache-2.0
// Which block is evicted next.
//
// First those that a sequential stream has passed, oldest first; then those used longest ago. What was read ahead and
// not read yet is kept from other read-ahead, which would only push itself out; for a read that needs memory, or a
// writer that waits, the block furthest ahead goes. Read-ahead that is unread after ten seconds goes like the rest.
//
// Holds the blocks that are wholly there; not synchronised (the cache's mutex guards it).
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>

#include "ckptfs/clock.h"
#include "read/block.h"

namespace ckptfs {

class EvictionOrder {
public:
    static constexpr std::chrono::seconds kForgottenAfter{10};

    // Moves the block to the young end of the list for `place`.
    void place(const std::shared_ptr<CachedBlock>& block, CachedBlock::Place place, SteadyTime now);
    void remove(CachedBlock& block);
    // Null if every used block is pinned and no unread one may be taken.
    [[nodiscard]] std::shared_ptr<CachedBlock> victim(bool may_take_unread, SteadyTime now) const;
    // A block that was placed before `then` and is not pinned, or null.
    [[nodiscard]] std::shared_ptr<CachedBlock> unused_since(SteadyTime then) const;

private:
    using List = std::list<std::shared_ptr<CachedBlock>>;
    [[nodiscard]] List& list_of(CachedBlock::Place place);

    List unread_;
    List used_;
    List consumed_;
};

}  // namespace ckptfs
