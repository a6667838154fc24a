// SPDX-License-Identifier: Apache-2.0
// Permits for what may be published only while its permit is valid: a commit marker, which the filesystem's gate has
// allowed. There may be a long outage between that and the last attempt to publish it.
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

    // Whether the permit is valid. Called before each attempt, on any thread, and under locks. Empty if no permit is
    // needed.
    Counts counts;
    // Asks for another permit when this one is no longer valid; if it is empty, nothing is published then. Calls back
    // on any thread.
    std::function<void(std::function<void(Result<Counts>)>)> renew;
};

// Permits that end before the store takes what they are for are renewed for as long as a request without progress is
// retried, and at least once even after that: all of the time may have passed while the machine stood still. Guarded by
// its owner.
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

// The error to report for a request that was no longer sent because its permit had ended: the store client does not
// know why it was not to send it. Other errors are returned unchanged.
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
    // The renewals for what is published from now on.
    [[nodiscard]] PermitRenewals renewals() const { return {clock_, retry_for_}; }

private:
    const Clock& clock_;
    const Milliseconds retry_for_;
    mutable Mutex mutex_;
    std::map<std::string, PublishPermit> permits_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
