// SPDX-License-Identifier: Apache-2.0
// A timer that runs what waits when it is told to. Threads: used by one.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "ckptfs/clock.h"

namespace ckptfs::testing {

class SteppedTimer final : public Timer {
public:
    Id after(Milliseconds delay, std::function<void()> run) override {
        waiting_[++last_] = {delay, std::move(run)};
        return last_;
    }
    void cancel(Id id) override { waiting_.erase(id); }

    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
    // How long the only one that waits had to.
    Milliseconds run() {
        const auto [delay, task] = std::exchange(waiting_, {}).begin()->second;
        task();
        return delay;
    }

private:
    Id last_ = 0;
    std::map<Id, std::pair<Milliseconds, std::function<void()>>> waiting_;
};

}  // namespace ckptfs::testing
