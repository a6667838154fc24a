// SPDX-License-Identifier: Apache-2.0
// Names that were found hidden by a directory's rename. To the kernel there is nothing under them; who asked may be
// about to create them.
//
// The kernel looks a name up right before it creates it or renames to it, so that what was found then need not be asked
// for again.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs::fs {

class HiddenNames {
public:
    // What the bucket says of the name now.
    void found(const std::string& key, bool is_hidden, SteadyTime now) {
        const MutexLock lock(mutex_);
        if (!is_hidden) {
            names_.erase(key);
            return;
        }
        if (names_.size() >= kMost) {
            std::erase_if(names_, [now](const auto& name) { return now - name.second >= kCountsFor; });
        }
        if (names_.size() < kMost || names_.contains(key)) {
            names_.insert_or_assign(key, now);
        }
    }
    [[nodiscard]] bool has(const std::string& key, SteadyTime now) const {
        const MutexLock lock(mutex_);
        const auto name = names_.find(key);
        return name != names_.end() && now - name->second < kCountsFor;
    }

private:
    // Beyond it they go unnoticed.
    static constexpr std::size_t kMost = 1024;
    // The kernel goes on at once, its process when it is its turn. A later lookup replaces what this one has found.
    static constexpr std::chrono::seconds kCountsFor{10};

    mutable Mutex mutex_;
    std::map<std::string, SteadyTime> names_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
