// SPDX-License-Identifier: Apache-2.0
// What may be published only while a permit counts: a commit marker, which the filesystem's gate has allowed. Between
// that and the last attempt to publish it there may be a long outage.
//
// The filesystem gives the permit for a key before it commits that file, and takes it back when the commit has ended.
// Threads: all functions may be called from any thread.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct PublishPermit {
    using Counts = std::function<bool()>;

    // Asked before each attempt, on any thread, and under locks. Empty: no permit is needed.
    Counts counts;
    // Asks for another where this one no longer counts; empty: then nothing is published. Calls back on any thread.
    std::function<void(std::function<void(Result<Counts>)>)> renew;
};

// Permits that end before the store takes what they are for are renewed as long as a request without progress is tried
// again. Once also after that: all of the time may have passed while the machine stood still. Guarded by its owner.
class PermitRenewals {
public:
    PermitRenewals(const Clock& clock, Milliseconds retry_for)
        : clock_(&clock), begun_(clock.now()), retry_for_(retry_for) {}
    [[nodiscard]] bool one_more() { return std::exchange(is_first_, false) || clock_->now() - begun_ < retry_for_; }

private:
    const Clock* clock_;
    SteadyTime begun_;
    Milliseconds retry_for_;
    bool is_first_ = true;
};

// What is told of a request that was not sent any more because its permit had ended: the store client does not know why
// it was not to send it. Another error is told as it is.
[[nodiscard]] inline Error told_as_late(Error error, const std::string& shown_key) {
    if (error.errno_value == EIO && error.http_status == 0 && !error.retryable) {
        error.message = shown_key +
                        " is not committed: the store did not take it within a minute after it was asked what has "
                        "failed beside it; save it again";
    }
    return error;
}

class PublishPermits {
public:
    PublishPermits(const Clock& clock, Milliseconds retry_for) : clock_(clock), retry_for_(retry_for) {}

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
    // Of what is published from now on.
    [[nodiscard]] PermitRenewals renewals() const { return {clock_, retry_for_}; }

private:
    const Clock& clock_;
    const Milliseconds retry_for_;
    mutable Mutex mutex_;
    std::map<std::string, PublishPermit> permits_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
