// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/repair_policy.h"

#include <algorithm>

namespace ckptfs::fs {

namespace {

// Ages are known to the second.
constexpr Milliseconds kShortestWait{100};
// How late a heartbeat may come, and how far the store's time of it may be off.
constexpr Milliseconds kBeatTolerance{5'000};

// Whether the record was written since its process was said to be dead. The last request of a process that has ended
// may look so, too: its rename is repaired later.
bool lives(const RepairFacts& facts) {
    return facts.age + kBeatTolerance < *facts.dead_for;
}

}  // namespace

Milliseconds believed_dead_after(Milliseconds repair_after) {
    return std::max(kLastRequests, repair_after / kBeatsInTime + 2 * kBeatTolerance);
}

RepairDecision decide_repair(const RepairFacts& facts) {
    RepairDecision decision;
    const bool committed = facts.record == MarkerState::kCommitted;
    Milliseconds wait = facts.repair_after - facts.age;
    if (facts.dead_for && !lives(facts)) {
        wait = std::min(wait, committed ? Milliseconds(0) : believed_dead_after(facts.repair_after) - *facts.dead_for);
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
