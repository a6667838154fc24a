// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/repair_policy.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {
namespace {

constexpr Milliseconds kAfter{600'000};

RepairDecision decide(std::optional<MarkerState> record, Milliseconds age) {
    return decide_repair({record, age, kAfter});
}

RepairDecision decide_for_dead(MarkerState record, Milliseconds age, Milliseconds dead_for) {
    return decide_repair({record, age, kAfter, dead_for});
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
    const Milliseconds young(0);
    EXPECT_EQ(decide_for_dead(MarkerState::kCommitted, young, Milliseconds(0)).action, RepairAction::kFinish);
    // Its last heartbeat may have been long before its death.
    const Milliseconds wait = believed_dead_after(kAfter);
    const RepairDecision early = decide_for_dead(MarkerState::kCopying, wait, wait - Milliseconds(10'000));
    EXPECT_EQ(early.action, RepairAction::kWait);
    EXPECT_EQ(early.wait, Milliseconds(10'000));
    EXPECT_EQ(decide_for_dead(MarkerState::kCopying, wait, wait).action, RepairAction::kRollBack);
    // As any mount may.
    EXPECT_EQ(decide_for_dead(MarkerState::kCopying, kAfter, Milliseconds(0)).action, RepairAction::kRollBack);
}

TEST(RepairPolicyTest, AHolderThatShowsASignOfLifeIsNotDead) {
    const Milliseconds wait = believed_dead_after(kAfter);
    for (const auto record : {MarkerState::kCopying, MarkerState::kCommitted}) {
        const RepairDecision decision = decide_for_dead(record, Milliseconds(50'000), wait);
        EXPECT_EQ(decision.action, RepairAction::kWait);
        EXPECT_EQ(decision.wait, kAfter - Milliseconds(50'000));
        // Until it shows none for as long as any other.
        EXPECT_NE(decide_for_dead(record, kAfter, kAfter + Milliseconds(50'000)).action, RepairAction::kWait);
    }
    // Times of the store are not exact.
    EXPECT_EQ(decide_for_dead(MarkerState::kCopying, wait - Milliseconds(1000), wait).action, RepairAction::kRollBack);
}

TEST(RepairPolicyTest, ASignOfLifeOfADeadHolderWouldHaveComeByThen) {
    EXPECT_GT(believed_dead_after(kAfter), kAfter / kBeatsInTime);
    EXPECT_GT(believed_dead_after(10 * kAfter), 10 * kAfter / kBeatsInTime);
    EXPECT_EQ(believed_dead_after(Milliseconds(1000)), kLastRequests);
}

}  // namespace
}  // namespace ckptfs::fs
