// SPDX-License-Identifier: Apache-2.0
#include "base/periodic.h"

#include <utility>

namespace ckptfs {

Periodic::Periodic(Timer& timer, Milliseconds period, std::function<void()> run)
    : timer_(timer), period_(period), run_(std::move(run)) {
    schedule();
}

Periodic::~Periodic() {
    Timer::Id waiting = 0;
    {
        const MutexLock lock(mutex_);
        stopped_ = true;
        waiting = waiting_;
    }
    timer_.cancel(waiting);
}

void Periodic::schedule() {
    const MutexLock lock(mutex_);
    if (stopped_) {
        return;
    }
    waiting_ = timer_.after(period_, [this] {
        run_();
        schedule();
    });
}

}  // namespace ckptfs
