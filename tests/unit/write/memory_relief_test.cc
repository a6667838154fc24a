// SPDX-License-Identifier: Apache-2.0
#include "write/memory_relief.h"

#include <gtest/gtest.h>

#include <vector>

#include "write/part_plan.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

StuckMemory writer(std::uint64_t open, std::uint64_t kept, std::uint64_t since, bool may_leave_early = true) {
    StuckMemory stuck;
    stuck.open_part = stuck.open_in_memory = open;
    stuck.kept_in_memory = kept;
    stuck.since = since;
    stuck.may_leave_early = may_leave_early;
    return stuck;
}

TEST(ChooseRelief, SendsTheLargestPartThatMayLeave) {
    const std::vector<StuckMemory> writers = {writer(4 * kMiB, 16 * kMiB, 1), writer(5 * kMiB, 0, 2),
                                              writer(6 * kMiB, 0, 3), writer(7 * kMiB, 0, 4, false)};
    const auto choice = choose_relief(writers);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->writer, 2U);
    EXPECT_EQ(choice->relief, Relief::kSendEarly);
    EXPECT_EQ(choice->bytes, 6 * kMiB);
}

TEST(ChooseRelief, ThenSpillsWhatIsOnlyKeptForPatches) {
    const std::vector<StuckMemory> writers = {writer(4 * kMiB, 8 * kMiB, 1), writer(4 * kMiB, 16 * kMiB, 2)};
    const auto choice = choose_relief(writers);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->writer, 1U);
    EXPECT_EQ(choice->relief, Relief::kSpillKept);
}

TEST(ChooseRelief, ThenSpillsTheUnfinishedPartThatHasWaitedLongest) {
    const std::vector<StuckMemory> writers = {writer(4 * kMiB, 0, 7), writer(1, 0, 3), writer(0, 0, 1),
                                              writer(9 * kMiB, 0, 5, false)};
    const auto choice = choose_relief(writers);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->writer, 1U);
    EXPECT_EQ(choice->relief, Relief::kSpillOpen);
}

TEST(ChooseRelief, LeavesPartsAloneThatHoldNoMemory) {
    StuckMemory staged = writer(6 * kMiB, 0, 1);
    staged.open_in_memory = 0;
    const std::vector<StuckMemory> writers = {staged, writer(0, 0, 0)};
    EXPECT_FALSE(choose_relief(writers));
    EXPECT_FALSE(choose_relief({}));
}

Shortage shortage() {
    Shortage stuck;
    stuck.writes_waiting = 2;
    stuck.held = 80 * kMiB;
    return stuck;
}

TEST(NeedsRelief, OnlyWhileSomebodyWaits) {
    EXPECT_TRUE(needs_relief(shortage()));
    Shortage nobody = shortage();
    nobody.writes_waiting = 0;
    EXPECT_FALSE(needs_relief(nobody));
}

TEST(NeedsRelief, NotWhileEnoughIsOnItsWayToTheStore) {
    Shortage busy = shortage();
    busy.leaving = 19 * kMiB;
    EXPECT_TRUE(needs_relief(busy));
    busy.leaving = 20 * kMiB;
    EXPECT_FALSE(needs_relief(busy));
}

TEST(NeedsRelief, SpillsNoMoreThanIsWaitedFor) {
    Shortage spilling = shortage();
    spilling.spilling = 5 * kMiB;
    EXPECT_TRUE(needs_relief(spilling));
    spilling.spilling = 6 * kMiB;
    EXPECT_FALSE(needs_relief(spilling));
}

TEST(NeedsRelief, LetsStagedPartsLeaveBeforeMoreIsStaged) {
    Shortage queued = shortage();
    queued.staged_parts_waiting = 1;
    EXPECT_FALSE(needs_relief(queued));
    // Unless they cannot, for lack of memory.
    queued.commits_waiting = 1;
    EXPECT_TRUE(needs_relief(queued));
}

}  // namespace
}  // namespace ckptfs
