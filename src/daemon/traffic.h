// SPDX-License-Identifier: Apache-2.0
// How fast bytes move now: totals that only grow, looked at every second, of which the last few are kept. Pure.
// Threads: used by one at a time.
#pragma once

#include <cstdint>
#include <deque>

#include "ckptfs/clock.h"

namespace ckptfs {

// Bytes, or bytes a second.
struct Traffic {
    // By programs.
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    // To and from the store, with everything that is not a file's bytes.
    std::uint64_t sent = 0;
    std::uint64_t received = 0;

    friend bool operator==(const Traffic&, const Traffic&) = default;
};

class TrafficMeter {
public:
    static constexpr Milliseconds kPeriod{1'000};
    // Smooth enough to be read, short enough to be now.
    static constexpr std::size_t kSamples = 6;

    void add(SteadyTime now, const Traffic& totals);
    // A second, from the oldest sample kept to the newest; zero before the second one.
    [[nodiscard]] Traffic rates() const;

private:
    struct Sample {
        SteadyTime time;
        Traffic totals;
    };
    std::deque<Sample> samples_;
};

}  // namespace ckptfs
