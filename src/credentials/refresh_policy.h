// SPDX-License-Identifier: Apache-2.0
// When credentials are fetched again. Pure: time and chance are passed in.
#pragma once

#include <optional>

#include "ckptfs/clock.h"

namespace ckptfs {

struct RefreshTimes {
    // When newer credentials are fetched; these stay in use meanwhile.
    WallTime refresh;
    // Until when the credentials are used.
    WallTime trusted;

    friend bool operator==(const RefreshTimes&, const RefreshTimes&) = default;
};

// For credentials that were fetched at `now`. Between 15 and 10 minutes before they expire, as the AWS SDKs do, evenly
// spread by `random` in [0, 1), so that the nodes of a job do not all ask at once; and never before half their time has
// passed: a source that keeps its credentials to their end is asked ever sooner, not all the time.
//
// Credentials that have expired on arrival are used for a minute: this machine's clock may be wrong, and the store
// decides.
[[nodiscard]] std::optional<RefreshTimes> refresh_times(std::optional<WallTime> expires, WallTime now, double random);

// How long a source that has just failed so many times in a row is left alone: evenly between half and all of 1, 2, 4 …
// 60 seconds.
[[nodiscard]] Milliseconds pause_after_failures(int failures, double random);

// How long a source is left alone after a fetch because the store had refused what it gave before. `refusals`: such
// fetches in a row, without a request that was accepted in between. The first time, other credentials are simply used;
// later, and if it gave the same again, the pause is as after failures, but 15 seconds at most: a file that is written
// late is found soon, and all requests that are refused meanwhile cost the source nothing.
[[nodiscard]] Milliseconds pause_after_refusals(int refusals, bool gave_the_same, double random);

}  // namespace ckptfs
