// SPDX-License-Identifier: Apache-2.0
// A timer that runs nothing before the test says so. Threads: all functions may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ckptfs/clock.h"

namespace ckptfs::testing {

class HandTimer final : public Timer {
public:
    Id after(Milliseconds delay, std::function<void()> run) override {
        std::lock_guard lock(mutex_);
        waiting_.emplace(++last_id_, Waiting{delay, std::move(run)});
        return last_id_;
    }
    void cancel(Id id) override {
        std::lock_guard lock(mutex_);
        waiting_.erase(id);
    }
    // What was asked for with exactly this delay, until now.
    void run(Milliseconds delay) {
        std::vector<std::function<void()>> due;
        {
            std::lock_guard lock(mutex_);
            for (auto each = waiting_.begin(); each != waiting_.end();) {
                if (each->second.delay == delay) {
                    due.push_back(std::move(each->second.run));
                    each = waiting_.erase(each);
                } else {
                    ++each;
                }
            }
        }
        for (const std::function<void()>& run : due) {
            run();
        }
    }
    [[nodiscard]] std::size_t waiting(Milliseconds delay) const {
        std::lock_guard lock(mutex_);
        return static_cast<std::size_t>(std::count_if(waiting_.begin(), waiting_.end(),
                                                      [&](const auto& each) { return each.second.delay == delay; }));
    }
    [[nodiscard]] bool waits_longer_than(Milliseconds delay) const {
        std::lock_guard lock(mutex_);
        return std::any_of(waiting_.begin(), waiting_.end(),
                           [&](const auto& each) { return each.second.delay > delay; });
    }

private:
    struct Waiting {
        Milliseconds delay;
        std::function<void()> run;
    };
    mutable std::mutex mutex_;
    std::map<Id, Waiting> waiting_;
    Id last_id_ = 0;
};

}  // namespace ckptfs::testing
