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
    Milliseconds patience = facts.repair_after;
    if (facts.holder_is_dead) {
        patience = committed ? Milliseconds(0) : std::min(patience, kLastRequests);
    }
    if (facts.age < patience) {
        decision.wait = std::max(kShortestWait, patience - facts.age);
        return decision;
    }
    decision.action = committed ? RepairAction::kFinish : RepairAction::kRollBack;
    decision.record = committed ? MarkerState::kCommitted : MarkerState::kRollingBack;
    return decision;
}

}  // namespace ckptfs::fs
