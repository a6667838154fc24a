// SPDX-License-Identifier: Apache-2.0
#include "fs/repair_policy.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {
namespace {

constexpr Milliseconds kAfter{600'000};

RepairDecision decide(std::optional<MarkerState> record, Milliseconds age) {
    return decide_repair({record, age, kAfter});
}

TEST(RepairPolicyTest, ARenameThatShowsASignOfLifeIsLeftAlone) {
    for (const auto record : {std::optional<MarkerState>(), std::optional(MarkerState::kCopying),
                              std::optional(MarkerState::kCommitted), std::optional(MarkerState::kRollingBack)}) {
        const RepairDecision decision = decide(record, kAfter - Milliseconds(1000));
        EXPECT_EQ(decision.action, RepairAction::kWait);
        EXPECT_EQ(decision.wait, Milliseconds(1000));
    }
    EXPECT_GE(decide(MarkerState::kCopying, kAfter - Milliseconds(1)).wait, Milliseconds(100));
}

TEST(RepairPolicyTest, OnlyADecidedRenameGoesForward) {
    EXPECT_EQ(decide(MarkerState::kCommitted, kAfter).action, RepairAction::kFinish);
    EXPECT_EQ(decide(MarkerState::kCommitted, kAfter).record, MarkerState::kCommitted);
    for (const auto record : {std::optional<MarkerState>(), std::optional(MarkerState::kCopying),
                              std::optional(MarkerState::kRollingBack)}) {
        EXPECT_EQ(decide(record, kAfter).action, RepairAction::kRollBack);
        EXPECT_EQ(decide(record, kAfter).record, MarkerState::kRollingBack);
    }
}

TEST(RepairPolicyTest, NobodyWaitsForADeadHolderOnlyForItsLastRequests) {
    const auto decide_for_dead = [](MarkerState record, Milliseconds age, Milliseconds dead_for) {
        return decide_repair({record, age, kAfter, dead_for});
    };
    const Milliseconds young(0);
    EXPECT_EQ(decide_for_dead(MarkerState::kCommitted, young, Milliseconds(0)).action, RepairAction::kFinish);
    // Its last sign of life may have been long before its death.
    const RepairDecision early = decide_for_dead(MarkerState::kCopying, kLastRequests, Milliseconds(50'000));
    EXPECT_EQ(early.action, RepairAction::kWait);
    EXPECT_EQ(early.wait, Milliseconds(10'000));
    EXPECT_EQ(decide_for_dead(MarkerState::kCopying, young, kLastRequests).action, RepairAction::kRollBack);
    // As any mount may.
    EXPECT_EQ(decide_for_dead(MarkerState::kCopying, kAfter, Milliseconds(0)).action, RepairAction::kRollBack);
}

}  // namespace
}  // namespace ckptfs::fs
