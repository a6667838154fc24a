// SPDX-License-Identifier: Apache-2.0
// Judges whether a transfer crawls while others of the same direction move: its connection is then worth less than a
// new one.
//
// A rate is far too low only compared with that of others. What others moved in the same time decides, if there are
// any, so a link that is slow for all is never blamed on one connection, from the start or from some moment on. If a
// transfer was alone, what the mount saw in the minute before may decide, and each time the older half of that is
// forgotten: a link that has become slow for a single reader costs a few new connections, then none.
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
    // In bytes: a smaller transfer takes the time of its round trip.
    static constexpr std::int64_t kSmallestSample = std::int64_t{64} << 10;

    // Records a window of a transfer that goes on, or a whole transfer.
    void saw(const RateWindow& window);
    // The rate of the others, if that of `window` is far below it. Take `by_the_past` only for transfers that lose
    // nothing when they are started again.
    [[nodiscard]] std::optional<double> crawls_beside(const RateWindow& window, bool by_the_past);

private:
    struct Sample {
        std::uint64_t transfer = 0;
        SteadyTime end{};
        double rate = 0;
    };
    // The median rate of the samples that ended after `since`, except those of transfer `but`; empty if there are none,
    // or fewer than `fewest`.
    [[nodiscard]] std::optional<double> usual_rate(std::uint64_t but, SteadyTime since, std::size_t fewest) const;

    std::deque<Sample> samples_;
};

}  // namespace ckptfs
