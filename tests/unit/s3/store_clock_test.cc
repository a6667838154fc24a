// SPDX-License-Identifier: Apache-2.0
#include "s3/store_clock.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/manual_clock.h"

namespace ckptfs::s3 {
namespace {

using std::chrono::seconds;

class StoreClockTest : public ::testing::Test {
protected:
    void answer(seconds ahead, Microseconds duration = {}) {
        Attempt attempt;
        attempt.duration = duration;
        attempt.server_time = machine.wall_now() + ahead;
        clock.ended(attempt);
    }
    [[nodiscard]] WallTime::duration ahead() const { return clock.wall_now() - machine.wall_now(); }

    testing::ManualClock machine;
    StoreClock clock{machine};
};

TEST_F(StoreClockTest, IsThatOfTheMachineUntilTheStoreTellsAnother) {
    EXPECT_EQ(ahead(), seconds(0));
    clock.ended(Attempt{});
    EXPECT_EQ(ahead(), seconds(0));
    answer(seconds(-7200));
    EXPECT_EQ(ahead(), seconds(-7200));
    machine.move(Milliseconds(60'000));
    EXPECT_EQ(ahead(), seconds(-7200));
    EXPECT_EQ(clock.now(), machine.now());
}

TEST_F(StoreClockTest, DoesNotGoToAndFro) {
    answer(seconds(6));
    for (const int off : {5, 4, 6, 7}) {
        answer(seconds(off));
        EXPECT_EQ(ahead(), seconds(6)) << off;
    }
    for (int answers = 0; answers < 2; ++answers) {
        answer(seconds(-40), seconds(40));
        EXPECT_EQ(ahead(), seconds(6)) << "it took that long";
    }
    answer(seconds(0));
    answer(seconds(0));
    EXPECT_EQ(ahead(), seconds(0));
}

TEST_F(StoreClockTest, IsNotChangedByOneAnswerAlone) {
    answer(seconds(0));
    // Of two servers, the clock of one is wrong.
    for (int answers = 0; answers < 3; ++answers) {
        answer(seconds(60));
        EXPECT_EQ(ahead(), seconds(0));
        answer(seconds(0));
        EXPECT_EQ(ahead(), seconds(0));
    }
    answer(seconds(60));
    answer(seconds(70));
    EXPECT_EQ(ahead(), seconds(0)) << "they do not agree";
    answer(seconds(66));
    EXPECT_EQ(ahead(), seconds(66));
}

TEST_F(StoreClockTest, TheSecondsThatAnAnswerTakesAreNoDifference) {
    for (const int off : {-5, -1, 0, 1, 5}) {
        answer(seconds(off));
        EXPECT_EQ(ahead(), seconds(0)) << off;
    }
    answer(seconds(6));
    answer(seconds(6));
    EXPECT_EQ(ahead(), seconds(6));
    answer(seconds(0));
    answer(seconds(0));
    EXPECT_EQ(ahead(), seconds(0));
}

}  // namespace
}  // namespace ckptfs::s3
