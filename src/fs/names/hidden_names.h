// SPDX-License-Identifier: Apache-2.0
// Names that were found hidden by a directory's rename. For the kernel there is nothing under them, and the caller may
// be about to create them.
//
// The kernel looks a name up right before it creates it or renames to it, so what was found then is not looked up
// again.
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
    // Notes what the bucket says of the name. It was asked at `asked`; the latest question counts.
    void found(const std::string& key, bool is_hidden, SteadyTime asked, SteadyTime now) {
        const MutexLock lock(mutex_);
        auto name = names_.find(key);
        if (name == names_.end()) {
            make_room(now);
            if (names_.size() >= kMost) {
                return;
            }
            name = names_.try_emplace(key).first;
        }
        if (asked >= name->second.asked) {
            name->second = Found{is_hidden, asked, now};
        }
    }
    [[nodiscard]] bool has(const std::string& key, SteadyTime now) const {
        const MutexLock lock(mutex_);
        const auto name = names_.find(key);
        return name != names_.end() && name->second.is_hidden && now - name->second.answered < kCountsFor;
    }

private:
    // Names beyond this number are not noted.
    static constexpr std::size_t kMost = 1024;
    // The kernel goes on at once, its process when it is scheduled. A later lookup replaces what this one has found.
    static constexpr std::chrono::seconds kCountsFor{10};

    struct Found {
        bool is_hidden = false;
        SteadyTime asked{};
        SteadyTime answered{};
    };

    void make_room(SteadyTime now) REQUIRES(mutex_) {
        if (names_.size() >= kMost) {
            std::erase_if(names_, [now](const auto& name) {
                return !name.second.is_hidden || now - name.second.answered >= kCountsFor;
            });
        }
    }

    mutable Mutex mutex_;
    // Includes names that are not hidden, in case an earlier question is answered later.
    std::map<std::string, Found> names_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
