// SPDX-License-Identifier: Apache-2.0
// Time that stands still unless moved. Threads: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "ckptfs/clock.h"

namespace ckptfs::testing {

class ManualClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return SteadyTime{} + std::chrono::hours(1) + passed_.load(); }
    [[nodiscard]] WallTime wall_now() const override {
        return WallTime(std::chrono::seconds(1'700'000'000)) + passed_.load();
    }
    void move(Milliseconds by) { passed_ = passed_.load() + by; }

private:
    std::atomic<Milliseconds> passed_{Milliseconds(0)};
};

}  // namespace ckptfs::testing
