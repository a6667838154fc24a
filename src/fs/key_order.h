// SPDX-License-Identifier: Apache-2.0
// The order of what changes one key of the bucket from this mount: commits, renames and removals.
//
// A commit goes on after its closer was killed, and S3 lets the request win that arrives last. So whatever is to change
// a key takes a place in line, and begins when everything before it that shares a key with it has ended, whether it
// took effect or failed. A key stands for all keys below it as well, so that a directory's rename waits for the files
// in it, and they for the rename.
//
// Nobody waits for what came later, so that there is no circle; every wait ends because every request to the store
// does. Threads: all functions may be called from any thread; callbacks run without the mutex, also inline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "write/outbox.h"

namespace ckptfs {

class KeyOrder {
public:
    using Place = std::uint64_t;

    // The place is kept until leave().
    [[nodiscard]] Place enter(std::vector<std::string> keys);
    // Nothing before it is under way any more.
    [[nodiscard]] bool is_first(Place place) const;
    // Calls back once that is so. At most once for each place.
    void when_first(Place place, std::function<void()> start);
    void leave(Place place);

private:
    struct Entry {
        std::vector<std::string> keys;
        int waits_for = 0;
        std::function<void()> start;
    };

    [[nodiscard]] static bool share_a_key(const Entry& one, const Entry& other);

    mutable std::mutex mutex_;
    // --- guarded by `mutex_`
    std::map<Place, Entry> entries_;
    Place next_ = 1;
    Outbox outbox_;
};

}  // namespace ckptfs
