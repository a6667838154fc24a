// SPDX-License-Identifier: Apache-2.0
#include "read/eviction_order.h"

#include <algorithm>
#include <utility>

namespace ckptfs {

void EvictionOrder::place(const std::shared_ptr<Block>& block, Block::Place place) {
    List& target = list_of(place);
    if (block->place == Block::Place::kNone) {
        block->position = target.insert(target.end(), block);
    } else {
        target.splice(target.end(), list_of(block->place), block->position);
    }
    block->place = place;
}

void EvictionOrder::remove(Block& block) {
    if (block.place != Block::Place::kNone) {
        list_of(std::exchange(block.place, Block::Place::kNone)).erase(block.position);
    }
}

std::shared_ptr<Block> EvictionOrder::victim(bool may_take_unread, SteadyTime now) const {
    const auto idle = [](const std::shared_ptr<Block>& block) { return block->pins.load() == 0; };
    for (const List* list : {&consumed_, &used_}) {
        const auto found = std::find_if(list->begin(), list->end(), idle);
        if (found != list->end()) {
            return *found;
        }
    }
    if (unread_.empty()) {
        return nullptr;
    }
    if (unread_.front()->ready_at + kForgottenAfter < now) {
        return unread_.front();
    }
    return may_take_unread ? unread_.back() : nullptr;
}

EvictionOrder::List& EvictionOrder::list_of(Block::Place place) {
    switch (place) {
        case Block::Place::kConsumed:
            return consumed_;
        case Block::Place::kUsed:
            return used_;
        case Block::Place::kUnread:
        case Block::Place::kNone:
            break;
    }
    return unread_;
}

}  // namespace ckptfs
