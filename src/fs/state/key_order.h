// SPDX-License-Identifier: Apache-2.0
// The order of what changes one key of the bucket from this mount: commits, renames and removals.
//
// A commit goes on after its closer was killed, and in S3 the request that arrives last wins. So whatever is to change
// a key takes a place in line, and begins when everything before it that shares a key with it has ended, whether it
// took effect or failed. A key stands for all keys below it as well, so that a directory's rename waits for the files
// in it, and they for the rename.
//
// No change waits for a later one, so that there is no cycle; every wait ends because every request to the store
// does. Threads: all functions may be called from any thread; callbacks run without the mutex, also inline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/outbox.h"

namespace ckptfs::fs {

class KeyOrder {
public:
    using Place = std::uint64_t;

    // The place is kept until leave().
    [[nodiscard]] Place enter(std::vector<std::string> keys);
    // Returns a place that is first; nothing if another place has the key, one above it or one below it.
    [[nodiscard]] std::optional<Place> enter_if_alone(std::string key);
    // Nothing before the place is under way any more.
    [[nodiscard]] bool is_first(Place place) const;
    // The place holds this key as well from now on. False if another place has the key, one above it or one below it.
    [[nodiscard]] bool add_if_alone(Place place, std::string key);
    // Calls back once is_first() is true. To be called at most once for each place.
    void when_first(Place place, std::function<void()> start);
    void leave(Place place);

private:
    // The keys have no '/' at their ends.
    using Keys = std::set<std::string, std::less<>>;
    struct Entry {
        Keys keys;
        int waits_for = 0;
        std::function<void()> start;
    };

    // Whether `keys` has that key, one above it or one below it.
    [[nodiscard]] static bool has_to_do_with(const Keys& keys, std::string_view key);
    [[nodiscard]] static bool share_a_key(const Entry& one, const Entry& other);
    [[nodiscard]] bool is_alone(Place place, std::string_view key) const REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::map<Place, Entry> entries_ GUARDED_BY(mutex_);
    Place next_ GUARDED_BY(mutex_) = 1;
    Outbox outbox_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
