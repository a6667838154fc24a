// SPDX-License-Identifier: Apache-2.0
#include "read/eviction_order.h"

#include <algorithm>
#include <utility>

namespace ckptfs {

namespace {

bool is_idle(const std::shared_ptr<CachedBlock>& block) {
    return block->pins.load() == 0;
}

}  // namespace

void EvictionOrder::place(const std::shared_ptr<CachedBlock>& block, CachedBlock::Place place, SteadyTime now) {
    List& target = list_of(place);
    if (block->place == CachedBlock::Place::kNone) {
        block->position = target.insert(target.end(), block);
    } else {
        target.splice(target.end(), list_of(block->place), block->position);
    }
    block->place = place;
    block->placed_at = now;
}

void EvictionOrder::remove(CachedBlock& block) {
    if (block.place != CachedBlock::Place::kNone) {
        list_of(std::exchange(block.place, CachedBlock::Place::kNone)).erase(block.position);
    }
}

std::shared_ptr<CachedBlock> EvictionOrder::victim(bool may_take_unread, SteadyTime now) const {
    for (const List* list : {&consumed_, &used_}) {
        const auto found = std::find_if(list->begin(), list->end(), is_idle);
        if (found != list->end()) {
            return *found;
        }
    }
    if (unread_.empty()) {
        return nullptr;
    }
    if (unread_.front()->placed_at + kForgottenAfter < now) {
        return unread_.front();
    }
    return may_take_unread ? unread_.back() : nullptr;
}

std::shared_ptr<CachedBlock> EvictionOrder::unused_since(SteadyTime then) const {
    for (const List* list : {&consumed_, &used_, &unread_}) {
        for (const std::shared_ptr<CachedBlock>& block : *list) {
            if (block->placed_at >= then) {
                break;
            }
            if (is_idle(block)) {
                return block;
            }
        }
    }
    return nullptr;
}

EvictionOrder::List& EvictionOrder::list_of(CachedBlock::Place place) {
    switch (place) {
        case CachedBlock::Place::kConsumed:
            return consumed_;
        case CachedBlock::Place::kUsed:
            return used_;
        case CachedBlock::Place::kUnread:
        case CachedBlock::Place::kNone:
            break;
    }
    return unread_;
}

}  // namespace ckptfs
