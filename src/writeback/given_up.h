// SPDX-License-Identifier: Apache-2.0
// Markers that a disk acknowledged and that were given up. Each is remembered until a change of its key or the removal
// of its directory is acknowledged, and at most for as long as failed files count; its disk has a note of it for as
// long.
//
// Threads: all functions may be called from any thread. None may be called with a lock held that `forget` takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class GivenUpMarkers {
public:
    // Beyond this no marker is added.
    static constexpr std::size_t kMost = 1'000;
    // Removes the note of this change.
    using Forget = std::function<void(std::uint64_t number)>;

    GivenUpMarkers(const Clock& clock, Milliseconds counts_for) : clock_(clock), counts_for_(counts_for) {}

    // `age`: how long ago it was given up. `forget` is called once, with the lock held, unless withdraw() is called
    // before. False if it is not remembered: `forget` will not be called.
    bool add(const std::string& key, Milliseconds age, std::uint64_t number, const Forget& forget) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        forget_old();
        if (age >= counts_for_ || markers_.size() >= kMost) {
            return false;
        }
        markers_.emplace(key, Marker{clock_.now() - age, number, &forget});
        return true;
    }
    // A change of this key was acknowledged: forgets it, and all that are old, so that no note keeps a log that grows.
    // Returns whether it was a marker given up.
    bool made_good(const std::string& key) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        forget_old();
        const auto [first, last] = markers_.equal_range(key);
        return forget(first, last);
    }
    // The directory was removed with all that is in it: forgets the markers below it, and returns them.
    std::vector<std::string> directory_removed(const std::string& directory) EXCLUDES(mutex_) {
        std::vector<std::string> removed;
        const MutexLock lock(mutex_);
        const auto first = markers_.lower_bound(directory);
        auto last = first;
        for (; last != markers_.end() && last->first.starts_with(directory); ++last) {
            removed.push_back(last->first);
        }
        forget(first, last);
        return removed;
    }
    // `forget` is not called any more.
    void withdraw(const Forget& forget) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        for (auto& [key, marker] : markers_) {
            marker.forget = marker.forget == &forget ? nullptr : marker.forget;
        }
    }
    // The number of markers, and the key of one of them.
    [[nodiscard]] std::pair<std::uint64_t, std::string> left() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        forget_old();
        return {markers_.size(), markers_.empty() ? "" : markers_.begin()->first};
    }

private:
    struct Marker {
        SteadyTime since{};
        std::uint64_t number = 0;
        const Forget* forget = nullptr;
    };
    using Markers = std::multimap<std::string, Marker>;

    bool forget(Markers::iterator first, Markers::iterator last) REQUIRES(mutex_) {
        const bool is_any = first != last;
        for (auto each = first; each != last; each = markers_.erase(each)) {
            if (each->second.forget != nullptr) {
                (*each->second.forget)(each->second.number);
            }
        }
        return is_any;
    }
    void forget_old() REQUIRES(mutex_) {
        const SteadyTime now = clock_.now();
        for (auto each = markers_.begin(); each != markers_.end();) {
            const auto next = std::next(each);
            if (now - each->second.since >= counts_for_) {
                forget(each, next);
            }
            each = next;
        }
    }

    const Clock& clock_;
    const Milliseconds counts_for_;
    Mutex mutex_;
    // One key may be given up several times.
    Markers markers_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
