// SPDX-License-Identifier: Apache-2.0
// Functions of one owner that a Timer runs later: none of them runs once stop() has returned.
//
// Threads: all functions may be called from any thread; stop() not from a function that the timer runs. The timer
// outlives this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class OwnedTimers {
public:
    explicit OwnedTimers(Timer& timer) : timer_(timer) {}
    ~OwnedTimers() { stop(); }
    OwnedTimers(const OwnedTimers&) = delete;
    OwnedTimers& operator=(const OwnedTimers&) = delete;

    // Does nothing once stopped.
    void after(Milliseconds delay, std::function<void()> run) {
        // Held until the id is noted: a function that runs at once waits for that before the id is erased.
        const MutexLock lock(mutex_);
        if (stopped_) {
            return;
        }
        const std::uint64_t number = ++last_;
        const Timer::Id id = timer_.after(delay, [this, number, run = std::move(run)] {
            run();
            const MutexLock forgetting(mutex_);
            waiting_.erase(number);
        });
        waiting_.emplace(number, id);
    }

    // Waits for a function that is running.
    void stop() {
        std::map<std::uint64_t, Timer::Id> waiting;
        {
            const MutexLock lock(mutex_);
            stopped_ = true;
            waiting.swap(waiting_);
        }
        for (const auto& [number, id] : waiting) {
            timer_.cancel(id);
        }
    }

private:
    Timer& timer_;
    Mutex mutex_;
    bool stopped_ GUARDED_BY(mutex_) = false;
    std::uint64_t last_ GUARDED_BY(mutex_) = 0;
    std::map<std::uint64_t, Timer::Id> waiting_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
