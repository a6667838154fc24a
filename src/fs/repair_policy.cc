// SPDX-License-Identifier: Apache-2.0
#include "fs/repair_policy.h"

#include <algorithm>

namespace ckptfs {

namespace {

// Ages are known to the second.
constexpr Milliseconds kShortestWait{100};

}  // namespace

RepairDecision decide_repair(const RepairFacts& facts) {
    RepairDecision decision;
    if (facts.age < facts.repair_after) {
        decision.wait = std::max(kShortestWait, facts.repair_after - facts.age);
        return decision;
    }
    const bool committed = facts.record == MarkerState::kCommitted;
    decision.action = committed ? RepairAction::kFinish : RepairAction::kRollBack;
    decision.record = committed ? MarkerState::kCommitted : MarkerState::kRollingBack;
    return decision;
}

}  // namespace ckptfs
