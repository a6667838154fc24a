// SPDX-License-Identifier: Apache-2.0
// A timer with a clock of its own. Threads: used by one.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "ckptfs/clock.h"
#include "support/manual_clock.h"

namespace ckptfs::testing {

// Moves the clock from one timer to the next.
class SimulatedTime final : public Timer {
public:
    Id after(Milliseconds delay, std::function<void()> run) override {
        waiting_.emplace(clock.now() + delay, std::move(run));
        return waiting_.size();
    }
    void cancel(Id) override {}

    void run_until(SteadyTime end) {
        while (!waiting_.empty() && waiting_.begin()->first <= end) {
            const auto next = waiting_.extract(waiting_.begin());
            move_to(next.key());
            next.mapped()();
        }
        move_to(end);
    }

    ManualClock clock;

private:
    void move_to(SteadyTime time) { clock.move(std::chrono::duration_cast<Milliseconds>(time - clock.now())); }

    std::multimap<SteadyTime, std::function<void()>> waiting_;
};

}  // namespace ckptfs::testing
