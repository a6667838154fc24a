// SPDX-License-Identifier: Apache-2.0
// The store's time, for comparison with times that the store has set: Last-Modified, and when an upload began. S3
// serves a machine whose clock is minutes off, and requests of one that is further off are signed with the store's
// time.
//
// Ownership: the machine's clock outlives it. Threads: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "s3/attempt.h"

namespace ckptfs::s3 {

class StoreClock final : public Clock, public AttemptObserver {
public:
    // Less is treated as no difference: a store gives the second in which it began to reply.
    static constexpr std::chrono::seconds kTolerated{5};

    explicit StoreClock(const Clock& machine) : machine_(machine) {}

    [[nodiscard]] SteadyTime now() const override { return machine_.now(); }
    // This machine's time until a reply has come.
    [[nodiscard]] WallTime wall_now() const override {
        return machine_.wall_now() + WallTime::duration(ahead_.load(std::memory_order_relaxed));
    }
    // A reply has the time at which it began: one that took long is ignored.
    void ended(const Attempt& attempt) override {
        if (attempt.server_time && attempt.duration < kQuick) {
            take(*attempt.server_time - machine_.wall_now());
        }
    }

private:
    static constexpr std::chrono::seconds kQuick{3};

    [[nodiscard]] static bool is_more(WallTime::duration difference) {
        return difference > kTolerated || difference < -kTolerated;
    }

    // Does not follow every reply: after the first, a change is believed when two replies in turn show it, because one
    // server of many, or one page of a proxy, may be wrong.
    void take(WallTime::duration ahead) {
        const MutexLock lock(mutex_);
        const bool is_first = !std::exchange(was_told_, true);
        if (!is_more(ahead - WallTime::duration(ahead_.load(std::memory_order_relaxed)))) {
            change_.reset();
        } else if (is_first || (change_ && !is_more(ahead - *change_))) {
            change_.reset();
            ahead_.store(is_more(ahead) ? ahead.count() : 0, std::memory_order_relaxed);
        } else {
            change_ = ahead;
        }
    }

    const Clock& machine_;
    // The store's time minus this machine's.
    std::atomic<WallTime::rep> ahead_{0};
    Mutex mutex_;
    bool was_told_ GUARDED_BY(mutex_) = false;
    // The difference in the last reply, as in ahead_, if that reply was the first to show it.
    std::optional<WallTime::duration> change_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::s3
