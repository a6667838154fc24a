// SPDX-License-Identifier: Apache-2.0
#include "fs/key_order.h"

#include <string_view>
#include <utility>

namespace ckptfs {

namespace {

// The empty one is the top of a mount without a prefix.
bool is_same_or_below(std::string_view key, std::string_view ancestor) {
    return ancestor.empty() ||
           (key.starts_with(ancestor) && (key.size() == ancestor.size() || key[ancestor.size()] == '/'));
}

}  // namespace

bool KeyOrder::share_a_key(const Entry& one, const Entry& other) {
    for (const std::string& left : one.keys) {
        for (const std::string& right : other.keys) {
            if (is_same_or_below(left, right) || is_same_or_below(right, left)) {
                return true;
            }
        }
    }
    return false;
}

KeyOrder::Place KeyOrder::enter(std::vector<std::string> keys) {
    Entry entry;
    entry.keys = std::move(keys);
    const std::lock_guard lock(mutex_);
    for (const auto& [place, earlier] : entries_) {
        entry.waits_for += share_a_key(entry, earlier) ? 1 : 0;
    }
    entries_.emplace(next_, std::move(entry));
    return next_++;
}

bool KeyOrder::is_first(Place place) const {
    const std::lock_guard lock(mutex_);
    return entries_.at(place).waits_for == 0;
}

void KeyOrder::when_first(Place place, std::function<void()> start) {
    {
        const std::lock_guard lock(mutex_);
        Entry& entry = entries_.at(place);
        if (entry.waits_for > 0) {
            entry.start = std::move(start);
            return;
        }
    }
    start();
}

void KeyOrder::leave(Place place) {
    std::unique_lock lock(mutex_);
    const auto left = entries_.find(place);
    for (auto later = std::next(left); later != entries_.end(); ++later) {
        Entry& entry = later->second;
        if (share_a_key(entry, left->second) && --entry.waits_for == 0 && entry.start) {
            outbox_.add(std::exchange(entry.start, nullptr));
        }
    }
    entries_.erase(left);
    outbox_.deliver(lock);
}

}  // namespace ckptfs
