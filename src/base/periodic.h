// SPDX-License-Identifier: Apache-2.0
// Calls a function again and again until its owner destroys this.
//
// Threads: `run` is called on the timer's thread, so that it must be short. The destructor waits for a call under way;
// it must not run inside one.
#pragma once

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class Periodic {
public:
    // The first call comes after one period. The timer outlives this.
    Periodic(Timer& timer, Milliseconds period, std::function<void()> run);
    ~Periodic();
    Periodic(const Periodic&) = delete;
    Periodic& operator=(const Periodic&) = delete;

private:
    void schedule();

    Timer& timer_;
    const Milliseconds period_;
    const std::function<void()> run_;

    Mutex mutex_;
    Timer::Id waiting_ GUARDED_BY(mutex_) = 0;
    bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs
