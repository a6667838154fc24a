// SPDX-License-Identifier: Apache-2.0
#include "s3/late_reads.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs::s3 {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

LateReads::Kind of_size(std::uint64_t bytes) {
    return LateReads::kind_of("GetObject", bytes);
}

void answer(LateReads& reads, const LateReads::Kind& kind, int times, Milliseconds took) {
    for (int time = 0; time < times; ++time) {
        reads.answered(kind, took);
    }
}

TEST(LateReads, NoneIsLateBeforeOthersWereAnswered) {
    LateReads reads;
    EXPECT_FALSE(reads.is_late(of_size(kMib), seconds(100)));
    answer(reads, of_size(kMib), 15, milliseconds(100));
    EXPECT_FALSE(reads.is_late(of_size(kMib), seconds(100)));
    answer(reads, of_size(kMib), 1, milliseconds(100));
    EXPECT_TRUE(reads.is_late(of_size(kMib), seconds(100)));
}

TEST(LateReads, OneIsLateAfterFourTimesTheUsualAndTwiceTheSlowOnes) {
    LateReads reads;
    answer(reads, of_size(kMib), 100, milliseconds(100));
    EXPECT_FALSE(reads.is_late(of_size(kMib), milliseconds(399)));
    EXPECT_TRUE(reads.is_late(of_size(kMib), milliseconds(400)));
    // More than five of a hundred.
    answer(reads, of_size(kMib), 10, milliseconds(500));
    EXPECT_FALSE(reads.is_late(of_size(kMib), milliseconds(999)));
    EXPECT_TRUE(reads.is_late(of_size(kMib), milliseconds(1000)));
}

TEST(LateReads, ARoundTripAndItsJitterAreNotLate) {
    LateReads reads;
    answer(reads, of_size(kMib), 100, milliseconds(1));
    EXPECT_FALSE(reads.is_late(of_size(kMib), LateReads::kLeastPatience - milliseconds(1)));
    EXPECT_TRUE(reads.is_late(of_size(kMib), LateReads::kLeastPatience));
}

TEST(LateReads, AreComparedWithThoseOfTheirSizeOrElseWithLargerOnes) {
    LateReads reads;
    answer(reads, of_size(16 * kMib), 20, seconds(1));
    EXPECT_TRUE(reads.is_late(of_size(kMib), seconds(4)));
    EXPECT_FALSE(reads.is_late(of_size(kMib), seconds(3)));
    EXPECT_FALSE(reads.is_late(of_size(64 * kMib), seconds(100)));
    EXPECT_FALSE(reads.is_late(LateReads::kind_of("HeadObject", 0), seconds(100)));
    answer(reads, of_size(kMib), 20, milliseconds(100));
    EXPECT_TRUE(reads.is_late(of_size(kMib), seconds(1)));
    EXPECT_TRUE(reads.is_late(of_size(kMib + kMib / 2), seconds(1)));
}

TEST(LateReads, WhatIsUsualFollowsALinkThatHasBecomeSlow) {
    LateReads reads;
    answer(reads, of_size(kMib), 1000, milliseconds(100));
    answer(reads, of_size(kMib), 128, seconds(2));
    EXPECT_FALSE(reads.is_late(of_size(kMib), seconds(7)));
    EXPECT_TRUE(reads.is_late(of_size(kMib), seconds(8)));
}

int take_all(LateReads& reads) {
    int taken = 0;
    for (; reads.has_allowance(); ++taken) {
        reads.ask_again();
    }
    return taken;
}

TEST(LateReads, FewAreAskedAgain) {
    LateReads reads;
    EXPECT_EQ(take_all(reads), LateReads::kAtOnce);
    answer(reads, of_size(kMib), 49, milliseconds(100));
    EXPECT_EQ(take_all(reads), 0);
    // Of fractions that add up to one, or to a little more or less.
    answer(reads, of_size(kMib), 2, milliseconds(100));
    EXPECT_EQ(take_all(reads), 1);
    answer(reads, of_size(kMib), 100'000, milliseconds(100));
    EXPECT_EQ(take_all(reads), LateReads::kAtOnce);
}

}  // namespace
}  // namespace ckptfs::s3
