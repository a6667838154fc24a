// SPDX-License-Identifier: Apache-2.0
#include "fs/repair_policy.h"

#include <algorithm>

namespace ckptfs::fs {

namespace {

// Ages are known to the second.
constexpr Milliseconds kShortestWait{100};

}  // namespace

RepairDecision decide_repair(const RepairFacts& facts) {
    RepairDecision decision;
    const bool committed = facts.record == MarkerState::kCommitted;
    Milliseconds wait = facts.repair_after - facts.age;
    if (facts.dead_for) {
        wait = std::min(wait, committed ? Milliseconds(0) : kLastRequests - *facts.dead_for);
    }
    if (wait > Milliseconds(0)) {
        decision.wait = std::max(kShortestWait, wait);
        return decision;
    }
    decision.action = committed ? RepairAction::kFinish : RepairAction::kRollBack;
    decision.record = committed ? MarkerState::kCommitted : MarkerState::kRollingBack;
    return decision;
}

}  // namespace ckptfs::fs
