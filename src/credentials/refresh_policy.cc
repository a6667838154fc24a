// SPDX-License-Identifier: Apache-2.0
#include "credentials/refresh_policy.h"

#include <algorithm>
#include <chrono>

namespace ckptfs {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// The advisory and the mandatory refresh of the AWS SDKs (botocore/credentials.py documents both).
constexpr Milliseconds kLongestLead{minutes(15)};
constexpr Milliseconds kShortestLead{minutes(10)};
constexpr Milliseconds kTrustExpired{minutes(1)};
constexpr Milliseconds kFirstPause{seconds(1)};
constexpr Milliseconds kLongestPause{minutes(1)};
constexpr Milliseconds kLongestPauseAfterRefusal{seconds(15)};

Milliseconds scaled(Milliseconds time, double factor) {
    return Milliseconds(static_cast<Milliseconds::rep>(static_cast<double>(time.count()) * factor));
}

}  // namespace

std::optional<RefreshTimes> refresh_times(std::optional<WallTime> expires, WallTime now, double random) {
    if (!expires) {
        return std::nullopt;
    }
    if (*expires <= now) {
        return RefreshTimes{now + kTrustExpired, now + kTrustExpired};
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(*expires - now);
    const Milliseconds lead = kLongestLead - scaled(kLongestLead - kShortestLead, random);
    // A shorter life is spread as widely in proportion.
    const Milliseconds shortened = scaled(left / 2, 1 - random / 3);
    return RefreshTimes{*expires - std::min(lead, shortened), *expires};
}

Milliseconds pause_after_failures(int failures, double random) {
    Milliseconds pause = kFirstPause;
    for (int doubling = 1; doubling < failures && pause < kLongestPause; ++doubling) {
        pause = std::min(pause * 2, kLongestPause);
    }
    return scaled(pause, (1 + random) / 2);
}

Milliseconds pause_after_refusals(int refusals, bool gave_the_same, double random) {
    if (!gave_the_same && refusals <= 1) {
        return Milliseconds(0);
    }
    return std::min(pause_after_failures(refusals, random), kLongestPauseAfterRefusal);
}

}  // namespace ckptfs
