// SPDX-License-Identifier: Apache-2.0
// Markers that a disk acknowledged and that were given up. Each is remembered until a change of its key or the removal
// of its directory is acknowledged, and at most for as long as failed files count.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
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

    GivenUpMarkers(const Clock& clock, Milliseconds counts_for) : clock_(clock), counts_for_(counts_for) {}

    void add(const std::string& key) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        forget_old();
        if (markers_.size() < kMost) {
            markers_.insert_or_assign(key, clock_.now());
        }
    }
    // A change of this key was acknowledged: forgets it. Returns whether it was a marker given up.
    bool made_good(const std::string& key) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return markers_.erase(key) > 0;
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
        markers_.erase(first, last);
        return removed;
    }
    // The number of markers, and the key of one of them.
    [[nodiscard]] std::pair<std::uint64_t, std::string> left() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        forget_old();
        return {markers_.size(), markers_.empty() ? "" : markers_.begin()->first};
    }

private:
    void forget_old() REQUIRES(mutex_) {
        const SteadyTime now = clock_.now();
        std::erase_if(markers_, [this, now](const auto& each) { return now - each.second >= counts_for_; });
    }

    const Clock& clock_;
    const Milliseconds counts_for_;
    Mutex mutex_;
    std::map<std::string, SteadyTime> markers_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
