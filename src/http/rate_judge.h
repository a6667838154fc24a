// SPDX-License-Identifier: Apache-2.0
// Whether a transfer crawls while others of the same direction move: its connection is then worth less than a new one.
//
// A rate is far too low only beside that of others. What others moved in the same time decides where there is any, so a
// link that is slow for all is never blamed on one connection, from the start or from some moment on. Where a transfer
// was alone, what the mount saw in the minute before may decide, and each time the older half of that is forgotten:
// a link that has become slow for a single reader costs a few new connections, then none.
//
// A value without I/O; the owner guards it. Time is passed in.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "ckptfs/clock.h"

namespace ckptfs {

// What one transfer moved in some time.
struct RateWindow {
    std::uint64_t transfer = 0;
    SteadyTime begin{};
    SteadyTime end{};
    std::int64_t bytes = 0;

    // Bytes a second.
    [[nodiscard]] double rate() const;
};

class RateJudge {
public:
    // The time of less is that of its round trip.
    static constexpr std::int64_t kSmallestSample = std::int64_t{64} << 10;

    // Of a transfer that goes on, or a whole one.
    void saw(const RateWindow& window);
    // The rate of the others, if this one crawls beside it. Take `by_the_past` only for transfers that lose nothing
    // when they are started again.
    [[nodiscard]] std::optional<double> crawls_beside(const RateWindow& window, bool by_the_past);

private:
    struct Sample {
        std::uint64_t transfer = 0;
        SteadyTime end{};
        double rate = 0;
    };
    // The median of those that ended since then, at least `fewest` of them.
    [[nodiscard]] std::optional<double> usual_rate(std::uint64_t but, SteadyTime since, std::size_t fewest) const;

    std::deque<Sample> samples_;
};

}  // namespace ckptfs
