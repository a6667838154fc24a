// SPDX-License-Identifier: Apache-2.0
#include "fs/files/publish_pace.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// How many intervals pass until it is due.
int intervals(PublishPace& pace, std::uint64_t unpublished, std::uint64_t sent_again) {
    int count = 0;
    do {
        pace.passed(unpublished, sent_again);
        ++count;
    } while (!pace.is_due() && count < 100'000);
    pace.begins();
    return count;
}

TEST(PublishPace, WhatCostsLittleIsPublishedEachTime) {
    PublishPace pace(Milliseconds(200));
    EXPECT_EQ(intervals(pace, 10, 0), 1);
    EXPECT_EQ(intervals(pace, 10, PublishPace::kCheap), 1);
}

TEST(PublishPace, TheMoreIsSentAgainTheLessOften) {
    PublishPace pace(Milliseconds(200));
    EXPECT_EQ(intervals(pace, 10, 2 * PublishPace::kCheap), 2);
    EXPECT_EQ(intervals(pace, 10, kMiB), 16);
    EXPECT_EQ(intervals(pace, 10, 4 * kMiB), 64);
}

TEST(PublishPace, AFollowerWaitsForHalfAMinuteAtMost) {
    PublishPace fast(Milliseconds(1000));
    EXPECT_EQ(intervals(fast, 10, 5 * kMiB), 30);
    PublishPace usual(Milliseconds(30'000));
    EXPECT_EQ(intervals(usual, 10, 5 * kMiB), 1);
    PublishPace slow(Milliseconds(3'600'000));
    EXPECT_EQ(intervals(slow, 10, 5 * kMiB), 1);
}

TEST(PublishPace, WhatHasDoubledIsDueAtOnce) {
    PublishPace pace(Milliseconds(200));
    EXPECT_EQ(intervals(pace, kMiB - 1, kMiB), 16);
    EXPECT_EQ(intervals(pace, kMiB, kMiB), 1);
}

TEST(PublishPace, ALogIsSentTwiceAndSoMuchAnInterval) {
    for (const std::uint64_t growth : {std::uint64_t{1000}, std::uint64_t{10'000}, kMiB / 8, kMiB}) {
        PublishPace pace(Milliseconds(100));
        std::uint64_t size = 0;
        std::uint64_t published = 0;
        std::uint64_t sent = 0;
        std::uint64_t passed = 0;
        while (size < 5 * kMiB && passed < 300) {
            size += growth;
            ++passed;
            pace.passed(size - published, published);
            if (pace.is_due()) {
                pace.begins();
                pace.ended(true);
                sent += size;
                published = size;
            }
        }
        EXPECT_LE(sent, 2 * size + 2 * passed * PublishPace::kCheap) << growth;
    }
}

TEST(PublishPace, WhatFailsIsTriedLessAndLessOften) {
    PublishPace pace(Milliseconds(1000));
    for (const int expected : {1, 2, 4, 8, 16, 30, 30}) {
        EXPECT_EQ(intervals(pace, 10, 5), expected);
        pace.ended(false);
    }
    pace.ended(true);
    EXPECT_EQ(intervals(pace, 10, 5), 1);
}

}  // namespace
}  // namespace ckptfs::fs
