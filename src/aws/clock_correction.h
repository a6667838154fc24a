// SPDX-License-Identifier: Apache-2.0
// This machine's time, corrected by what a server has said of its own: requests signed with a wrong time are refused.
// Ownership: the clock outlives it. Threads: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "ckptfs/clock.h"

namespace ckptfs {

class ClockCorrection {
public:
    explicit ClockCorrection(const Clock& clock) : clock_(clock) {}

    // The time with which requests are signed.
    [[nodiscard]] WallTime now() const { return clock_.wall_now() + WallTime::duration(correction_.load()); }

    struct Corrected {
        // The server's time minus ours.
        std::chrono::seconds by;
        // The first correction: it is worth a log line.
        bool is_first;
    };
    // `server_time`: from the Date header of a reply that refused the time.
    Corrected take(WallTime server_time) {
        const WallTime::duration correction = server_time - clock_.wall_now();
        const bool is_first = correction_.exchange(correction.count()) == 0;
        return {std::chrono::duration_cast<std::chrono::seconds>(correction), is_first};
    }

private:
    const Clock& clock_;
    std::atomic<WallTime::rep> correction_{0};
};

}  // namespace ckptfs
