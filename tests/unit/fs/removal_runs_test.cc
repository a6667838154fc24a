// SPDX-License-Identifier: Apache-2.0
#include "fs/names/removal_runs.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {
namespace {

class RemovalRunsTest : public ::testing::Test {
protected:
    // `thinks`: before it; `takes`: for the store.
    bool remove(NodeId directory, NodeId parent = 1, Milliseconds thinks = Milliseconds(1),
                Milliseconds takes = Milliseconds(60)) {
        now += thinks;
        const bool in_run = runs.begins(directory, parent, now);
        now += takes;
        runs.ends(directory, now);
        return in_run;
    }

    SteadyTime now{std::chrono::hours(1)};
    RemovalRuns runs;
};

TEST_F(RemovalRunsTest, SixteenInARowMakeARun) {
    for (int i = 0; i < 16; ++i) {
        EXPECT_FALSE(remove(10)) << i;
        EXPECT_FALSE(runs.is_running(10, now));
    }
    EXPECT_TRUE(remove(10));
    EXPECT_TRUE(runs.is_running(10, now));
    EXPECT_FALSE(runs.is_running(11, now));
    EXPECT_FALSE(runs.is_running(10, now + Milliseconds(1000)));
}

TEST_F(RemovalRunsTest, OnlyTheTimeBetweenThemCounts) {
    for (int i = 0; i < 16; ++i) {
        EXPECT_FALSE(remove(10, 1, Milliseconds(60), Milliseconds(500)));
    }
    EXPECT_TRUE(remove(10, 1, Milliseconds(60), Milliseconds(500)));
    for (int i = 0; i < 40; ++i) {
        EXPECT_FALSE(remove(20, 2, Milliseconds(70), Milliseconds(0)));
    }
}

TEST_F(RemovalRunsTest, APauseEndsIt) {
    for (int i = 0; i < 20; ++i) {
        remove(10);
    }
    EXPECT_FALSE(remove(10, 1, Milliseconds(1001)));
}

TEST_F(RemovalRunsTest, ItGoesThroughATree) {
    for (int i = 0; i < 20; ++i) {
        remove(10, 1);
    }
    EXPECT_TRUE(remove(1, 0)) << "the directory itself, from its parent";
    EXPECT_TRUE(remove(11, 1)) << "the next directory";
    EXPECT_TRUE(remove(12, 11)) << "one below it";
    EXPECT_TRUE(remove(11, 1));
    EXPECT_FALSE(remove(50, 49)) << "somewhere else";
    EXPECT_TRUE(remove(11, 1));
}

TEST_F(RemovalRunsTest, ManyAtOnceAreForgottenFromTheOldest) {
    for (int i = 0; i < 20; ++i) {
        remove(10, 9);
    }
    for (NodeId other = 100; other < 200; other += 10) {
        remove(other, other + 1);
    }
    EXPECT_FALSE(remove(10, 9));
}

}  // namespace
}  // namespace ckptfs::fs
