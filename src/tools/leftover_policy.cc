// SPDX-License-Identifier: Apache-2.0
#include "tools/leftover_policy.h"

#include <algorithm>
#include <chrono>

#include "ckptfs/store_limits.h"

namespace ckptfs {
namespace {

// How long a live mount may be silent. Two beats in a row may be lost, each after all its retries of --retry-for (5
// minutes). Mounts of earlier versions beat again only a whole period after each.
constexpr std::chrono::minutes kSilence{45};

bool lives(const SeenMount& mount, WallTime now) {
    return now - mount.last_seen < kSilence;
}

}  // namespace

std::string_view name_of(Leftover leftover) {
    switch (leftover) {
        case Leftover::kAbandoned:
            return "abandoned";
        case Leftover::kYoung:
            return "young";
        case Leftover::kPerhapsInUse:
            return "perhaps in use";
        case Leftover::kUnfinished:
            return "unfinished";
        case Leftover::kNeededByDisk:
            return "needed by a disk";
    }
    return "";
}

Leftover judge(WallTime initiated, const std::vector<SeenMount>& mounts, WallTime now, Milliseconds older_than) {
    if (initiated == WallTime{}) {
        return Leftover::kPerhapsInUse;
    }
    if (now - initiated < older_than) {
        return Leftover::kYoung;
    }
    const bool in_use = std::any_of(mounts.begin(), mounts.end(), [&](const SeenMount& mount) {
        return lives(mount, now) && (!mount.since || initiated > *mount.since - kMaxClockSkew);
    });
    return in_use ? Leftover::kPerhapsInUse : Leftover::kAbandoned;
}

}  // namespace ckptfs
