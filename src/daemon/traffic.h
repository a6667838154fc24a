// SPDX-License-Identifier: Apache-2.0
// How fast bytes move now: totals that only grow are sampled every second, and the last few samples are kept. Pure.
// Threads: used by one thread at a time.
#pragma once

#include <cstdint>
#include <deque>

#include "ckptfs/clock.h"

namespace ckptfs {

// Bytes, or bytes a second.
struct Traffic {
    // Written and read by programs.
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    // Sent to the store and received from it, with everything that is not a file's bytes.
    std::uint64_t sent = 0;
    std::uint64_t received = 0;

    friend bool operator==(const Traffic&, const Traffic&) = default;
};

class TrafficMeter {
public:
    static constexpr Milliseconds kPeriod{1'000};
    // Enough for a smooth rate, few enough for a current one.
    static constexpr std::size_t kSamples = 6;

    void add(SteadyTime now, const Traffic& totals);
    // Bytes a second from the oldest sample kept to the newest; zero before the second sample.
    [[nodiscard]] Traffic rates() const;

private:
    struct Sample {
        SteadyTime time;
        Traffic totals;
    };
    std::deque<Sample> samples_;
};

}  // namespace ckptfs
