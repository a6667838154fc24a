// SPDX-License-Identifier: Apache-2.0
#include "http/rate_judge.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs {
namespace {

using std::chrono::seconds;

constexpr SteadyTime kStart = SteadyTime{} + std::chrono::hours(1);
constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = kKiB * kKiB;

// Of `length` up to the time `end`, both in seconds.
RateWindow moved(std::uint64_t transfer, int end, std::int64_t bytes_a_second, int length = 5) {
    return {transfer, kStart + seconds(end - length), kStart + seconds(end), bytes_a_second * length};
}

TEST(RateJudge, OneThatCrawlsBesideOthersIsFound) {
    RateJudge judge;
    for (std::uint64_t other = 1; other <= 3; ++other) {
        judge.saw(moved(other, 10, 50 * kMiB));
    }
    const RateWindow crawling = moved(9, 11, kKiB);
    judge.saw(crawling);
    EXPECT_EQ(judge.crawls_beside(crawling, false), 50.0 * kMiB);
    EXPECT_FALSE(judge.crawls_beside(moved(9, 11, 10 * kMiB), true));
}

TEST(RateJudge, NothingIsKnownAtFirst) {
    RateJudge judge;
    const RateWindow window = moved(1, 10, 1);
    judge.saw(window);
    EXPECT_FALSE(judge.crawls_beside(window, true));
}

TEST(RateJudge, ALinkThatIsSlowForAllIsNeverBlamed) {
    RateJudge judge;
    for (int time = 5; time < 600; time += 5) {
        for (std::uint64_t transfer = 1; transfer <= 16; ++transfer) {
            judge.saw(moved(transfer, time, kKiB + static_cast<std::int64_t>(transfer) * 512));
        }
        for (std::uint64_t transfer = 1; transfer <= 16; ++transfer) {
            EXPECT_FALSE(judge.crawls_beside(moved(transfer, time, kKiB), true));
        }
    }
}

TEST(RateJudge, NorOneThatBecomesSlowForAll) {
    RateJudge judge;
    for (std::uint64_t whole = 100; whole < 200; ++whole) {
        judge.saw(moved(whole, 9, 100 * kMiB, 1));
    }
    for (std::uint64_t whole = 200; whole < 220; ++whole) {
        judge.saw(moved(whole, 11, 100 * kMiB, 1));
    }
    // Slow since the eleventh second. The loops look at theirs one after the other.
    for (std::uint64_t transfer = 1; transfer <= 8; ++transfer) {
        judge.saw(moved(transfer, 15, kKiB));
    }
    for (std::uint64_t transfer = 1; transfer <= 8; ++transfer) {
        EXPECT_FALSE(judge.crawls_beside(moved(transfer, 15, kKiB), true));
    }
    for (std::uint64_t transfer = 11; transfer <= 18; ++transfer) {
        judge.saw(moved(transfer, 17, kKiB));
        EXPECT_FALSE(judge.crawls_beside(moved(transfer, 17, kKiB), true));
    }
}

TEST(RateJudge, OneThatIsAloneIsComparedWithTheMinuteBefore) {
    RateJudge judge;
    for (std::uint64_t whole = 1; whole <= 16; ++whole) {
        judge.saw(moved(whole, 2, 50 * kMiB, 1));
    }
    RateJudge later = judge;
    const RateWindow crawling = moved(20, 20, kKiB);
    EXPECT_FALSE(judge.crawls_beside(crawling, false));
    EXPECT_TRUE(judge.crawls_beside(crawling, true));
    EXPECT_FALSE(later.crawls_beside(moved(20, 70, kKiB), true));
}

TEST(RateJudge, ALinkThatBecomesSlowForASingleReaderCostsAFewConnections) {
    RateJudge judge;
    for (std::uint64_t whole = 1; whole <= 100; ++whole) {
        judge.saw(moved(whole, 2, 50 * kMiB, 1));
    }
    int given_up = 0;
    for (int time = 10; time < 600; time += 5) {
        // Each on a connection of its own.
        const RateWindow window = moved(1000 + static_cast<std::uint64_t>(given_up), time, kKiB);
        judge.saw(window);
        given_up += judge.crawls_beside(window, true) ? 1 : 0;
    }
    EXPECT_GE(given_up, 1);
    EXPECT_LE(given_up, 5);
}

TEST(RateJudge, ATransferIsNotComparedWithItself) {
    RateJudge judge;
    for (int time = 1; time <= 20; ++time) {
        judge.saw(moved(1, time, 50 * kMiB, 1));
    }
    EXPECT_FALSE(judge.crawls_beside(moved(1, 25, kKiB), true));
}

}  // namespace
}  // namespace ckptfs
