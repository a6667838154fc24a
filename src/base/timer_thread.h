// SPDX-License-Identifier: Apache-2.0
// Timer with one thread of its own.
//
// Ownership: the destructor waits for a function that is running and drops those that are not due yet; a caller that
// must know cancels first.
// Threads: as Timer says; functions may call after() and cancel() of others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class TimerThread final : public Timer {
public:
    explicit TimerThread(const Clock& clock);
    ~TimerThread() override;
    TimerThread(const TimerThread&) = delete;
    TimerThread& operator=(const TimerThread&) = delete;

    Id after(Milliseconds delay, std::function<void()> run) override;
    void cancel(Id id) override;

private:
    // Equal times run in the order in which they were asked for.
    using Due = std::pair<SteadyTime, Id>;

    void run();

    const Clock& clock_;

    // Mutable.
    Mutex mutex_;
    Condition changed_;
    Condition finished_;
    std::map<Due, std::function<void()>> pending_ GUARDED_BY(mutex_);
    std::unordered_map<Id, SteadyTime> due_ GUARDED_BY(mutex_);
    Id last_id_ GUARDED_BY(mutex_) = 0;
    Id running_ GUARDED_BY(mutex_) = 0;
    std::thread::id timer_thread_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;

    // Last, so that everything above exists before it runs.
    std::thread thread_;
};

}  // namespace ckptfs
