// SPDX-License-Identifier: Apache-2.0
#include "fs/state/key_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckptfs::fs {

// The empty key is the top of a mount without a prefix. A batch of removals holds a thousand keys: none is compared
// without need.
bool KeyOrder::has_to_do_with(const Keys& keys, std::string_view key) {
    if (key.empty() || keys.contains(std::string_view()) || keys.contains(key)) {
        return !keys.empty();
    }
    for (std::size_t slash = key.find('/'); slash != std::string_view::npos; slash = key.find('/', slash + 1)) {
        if (keys.contains(key.substr(0, slash))) {
            return true;
        }
    }
    const std::string inside = std::string(key) + '/';
    const auto below = keys.lower_bound(inside);
    return below != keys.end() && below->starts_with(inside);
}

bool KeyOrder::share_a_key(const Entry& one, const Entry& other) {
    const Keys& few = one.keys.size() < other.keys.size() ? one.keys : other.keys;
    const Keys& many = one.keys.size() < other.keys.size() ? other.keys : one.keys;
    return std::any_of(few.begin(), few.end(), [&many](const std::string& key) { return has_to_do_with(many, key); });
}

KeyOrder::Place KeyOrder::enter(std::vector<std::string> keys) {
    Entry entry;
    entry.keys.insert(std::make_move_iterator(keys.begin()), std::make_move_iterator(keys.end()));
    const MutexLock lock(mutex_);
    for (const auto& [place, earlier] : entries_) {
        entry.waits_for += share_a_key(entry, earlier) ? 1 : 0;
    }
    entries_.emplace(next_, std::move(entry));
    return next_++;
}

bool KeyOrder::is_first(Place place) const {
    const MutexLock lock(mutex_);
    return entries_.at(place).waits_for == 0;
}

bool KeyOrder::is_alone(Place place, std::string_view key) const {
    return std::none_of(entries_.begin(), entries_.end(), [place, key](const auto& each) {
        return each.first != place && has_to_do_with(each.second.keys, key);
    });
}

std::optional<KeyOrder::Place> KeyOrder::enter_if_alone(std::string key) {
    const MutexLock lock(mutex_);
    if (!is_alone(next_, key)) {
        return std::nullopt;
    }
    entries_[next_].keys.insert(std::move(key));
    return next_++;
}

bool KeyOrder::add_if_alone(Place place, std::string key) {
    const MutexLock lock(mutex_);
    const bool alone = is_alone(place, key);
    if (alone) {
        entries_.at(place).keys.insert(std::move(key));
    }
    return alone;
}

void KeyOrder::when_first(Place place, std::function<void()> start) {
    {
        const MutexLock lock(mutex_);
        Entry& entry = entries_.at(place);
        if (entry.waits_for > 0) {
            entry.start = std::move(start);
            return;
        }
    }
    start();
}

void KeyOrder::leave(Place place) {
    MutexLock lock(mutex_);
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

}  // namespace ckptfs::fs
