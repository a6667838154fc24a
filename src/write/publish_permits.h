// SPDX-License-Identifier: Apache-2.0
// What may be published only while a permit counts: a commit marker, which the filesystem's gate has allowed. Between
// that and the last attempt to publish it there may be a long outage.
//
// The filesystem gives the permit for a key before it commits that file, and takes it back when the commit has ended.
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct PublishPermit {
    using Counts = std::function<bool()>;

    // Asked before each attempt, on any thread, and under locks. Empty: no permit is needed.
    Counts counts;
    // Asks for another where this one no longer counts, once; empty: then nothing is published. Calls back on any
    // thread.
    std::function<void(std::function<void(Result<Counts>)>)> renew;
};

class PublishPermits {
public:
    void give(const std::string& key, PublishPermit permit) {
        const MutexLock lock(mutex_);
        permits_[key] = std::move(permit);
    }
    void take_back(const std::string& key) {
        const MutexLock lock(mutex_);
        permits_.erase(key);
    }
    [[nodiscard]] PublishPermit find(const std::string& key) const {
        const MutexLock lock(mutex_);
        const auto found = permits_.find(key);
        return found == permits_.end() ? PublishPermit() : found->second;
    }

private:
    mutable Mutex mutex_;
    std::map<std::string, PublishPermit> permits_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
