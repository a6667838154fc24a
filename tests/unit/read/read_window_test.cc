// SPDX-License-Identifier: Apache-2.0
#include "read/read_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ckptfs/codec.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPlenty = 192;

// Reads sequentially in pieces of `piece` bytes while the link is always too slow; returns the plans.
std::vector<ReadPlan> walk(ReadWindow& window, std::uint64_t from, std::uint64_t to, std::uint64_t piece,
                           Found found = Found::kFetching, std::uint64_t limit = kPlenty) {
    std::vector<ReadPlan> plans;
    for (std::uint64_t offset = from; offset < to; offset += piece) {
        plans.push_back(window.on_read(offset, std::min(piece, to - offset), found, limit));
    }
    return plans;
}

std::uint64_t furthest(const std::vector<ReadPlan>& plans) {
    std::uint64_t end = 0;
    for (const ReadPlan& plan : plans) {
        end = std::max(end, plan.ahead.end);
    }
    return end;
}

TEST(ReadWindow, FirstReadAtTheHeadFetchesALittleAhead) {
    ReadWindow window(1000);
    const ReadPlan plan = window.on_read(0, 4096, Found::kAbsent, kPlenty);
    EXPECT_EQ(plan.ahead, (BlockSpan{1, 1 + ReadWindow::kFirstWindow}));
    EXPECT_EQ(plan.blocks_per_request, 1U);
}

TEST(ReadWindow, FirstReadElsewhereFetchesNothingAhead) {
    ReadWindow window(1000);
    EXPECT_TRUE(window.on_read(500 * kMiB, 4096, Found::kAbsent, kPlenty).ahead.empty());
    EXPECT_EQ(window.sequential_streams(), 0U);
}

TEST(ReadWindow, SecondReadInARowMakesAStream) {
    ReadWindow window(1000);
    static_cast<void>(window.on_read(500 * kMiB, kMiB, Found::kAbsent, kPlenty));
    const ReadPlan plan = window.on_read(501 * kMiB, kMiB, Found::kAbsent, kPlenty);
    EXPECT_EQ(plan.ahead, (BlockSpan{502, 502 + ReadWindow::kFirstWindow}));
}

TEST(ReadWindow, AStreamDeservesAShareOnceItHasPassedItsFirstWindow) {
    ReadWindow window(1000);
    static_cast<void>(walk(window, 500 * kMiB, 503 * kMiB, kMiB));
    EXPECT_EQ(window.sequential_streams(), 0U);
    static_cast<void>(walk(window, 503 * kMiB, 504 * kMiB, kMiB));
    EXPECT_EQ(window.sequential_streams(), 1U);
}

TEST(ReadWindow, GrowsToTheLimitWithinAFewWindowsWhileTheReaderWaits) {
    ReadWindow window(10'000);
    const auto plans = walk(window, 0, 60 * kMiB, kMiB);
    EXPECT_GE(furthest(plans), 60 + kPlenty - ReadWindow::kMaxBlocksPerRequest);
    EXPECT_LE(furthest(plans), 60 + kPlenty);
    EXPECT_EQ(plans.back().blocks_per_request, ReadWindow::kMaxBlocksPerRequest);
}

TEST(ReadWindow, KernelSizedReadsGrowLikeLargeOnes) {
    ReadWindow window(10'000);
    EXPECT_GE(furthest(walk(window, 0, 60 * kMiB, 128 << 10)), 60 + kPlenty - ReadWindow::kMaxBlocksPerRequest);
}

TEST(ReadWindow, DoesNotGrowForAReaderThatNeverWaits) {
    ReadWindow window(10'000);
    static_cast<void>(window.on_read(0, kMiB, Found::kAbsent, kPlenty));
    const auto plans = walk(window, kMiB, 100 * kMiB, kMiB, Found::kReady);
    // The first wait may count once.
    EXPECT_LE(furthest(plans), 100 + ReadWindow::kFirstWindow * ReadWindow::kGrowth);
}

TEST(ReadWindow, AsksForEveryBlockOnceAndLeavesNoneOut) {
    constexpr std::uint64_t kBlocks = 777;
    ReadWindow window(kBlocks);
    const auto plans = walk(window, 0, kBlocks * kMiB, 128 << 10);
    std::uint64_t next = 1;
    for (const ReadPlan& plan : plans) {
        if (!plan.ahead.empty()) {
            EXPECT_EQ(plan.ahead.begin, next);
            next = plan.ahead.end;
        }
    }
    EXPECT_EQ(next, kBlocks);
}

TEST(ReadWindow, NeverAsksBeyondTheEnd) {
    ReadWindow window(3);
    EXPECT_EQ(furthest(walk(window, 0, 3 * kMiB, 128 << 10)), 3U);
    ReadWindow one(1);
    EXPECT_EQ(furthest(walk(one, 0, 1000, 100)), 0U);
}

TEST(ReadWindow, LargeWindowsAskInWholeRequests) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    for (const ReadPlan& plan : walk(window, 100 * kMiB, 200 * kMiB, kMiB, Found::kReady)) {
        EXPECT_TRUE(plan.ahead.empty() || plan.ahead.count() >= ReadWindow::kMaxBlocksPerRequest);
    }
}

TEST(ReadWindow, KeepsWithinTheLimit) {
    for (const std::uint64_t limit : {0U, 1U, 3U, 7U, 20U}) {
        ReadWindow window(10'000);
        for (std::uint64_t block = 0; block < 200; ++block) {
            const ReadPlan plan = window.on_read(block * kMiB, kMiB, Found::kFetching, limit);
            EXPECT_LE(plan.ahead.end, plan.ahead.empty() ? plan.ahead.end : block + 1 + limit);
        }
    }
}

TEST(ReadWindow, ProbesOfTheTailLeaveTheStreamAlone) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    const std::uint64_t asked = window.outstanding().front().end;
    for (int probe = 0; probe < 100; ++probe) {
        const std::uint64_t offset = 9'000 * kMiB - static_cast<std::uint64_t>(probe) * 50 * kMiB;
        EXPECT_TRUE(window.on_read(offset, 22, Found::kReady, kPlenty).ahead.empty());
    }
    const auto plans = walk(window, 100 * kMiB, 108 * kMiB, kMiB);
    EXPECT_EQ(window.sequential_streams(), 1U);
    EXPECT_GT(furthest(plans), asked);
}

TEST(ReadWindow, TellsSixteenInterleavedStreamsApart) {
    ReadWindow window(100'000);
    std::vector<std::uint64_t> furthest_of(ReadWindow::kStreams, 0);
    for (std::uint64_t step = 0; step < 64; ++step) {
        for (std::uint64_t stream = 0; stream < ReadWindow::kStreams; ++stream) {
            const ReadPlan plan = window.on_read((stream * 1000 + step) * kMiB, kMiB, Found::kFetching, kPlenty);
            furthest_of[stream] = std::max(furthest_of[stream], plan.ahead.end);
        }
    }
    EXPECT_EQ(window.sequential_streams(), ReadWindow::kStreams);
    for (std::uint64_t stream = 0; stream < ReadWindow::kStreams; ++stream) {
        // Each has its share of the limit ahead of it.
        EXPECT_GT(furthest_of[stream], stream * 1000 + 64 + kPlenty / ReadWindow::kStreams / 2);
        EXPECT_LE(furthest_of[stream], stream * 1000 + 64 + kPlenty / ReadWindow::kStreams);
    }
}

TEST(ReadWindow, PiecesOfOneReadAheadMayArriveInAnyOrder) {
    ReadWindow window(10'000);
    std::mt19937 random(1);
    static_cast<void>(walk(window, 0, 32 * kMiB, kMiB));
    std::uint64_t end = 0;
    for (std::uint64_t group = 32; group < 320; group += 8) {
        std::vector<std::uint64_t> blocks{0, 1, 2, 3, 4, 5, 6, 7};
        std::shuffle(blocks.begin(), blocks.end(), random);
        for (const std::uint64_t block : blocks) {
            end = std::max(end, window.on_read((group + block) * kMiB, kMiB, Found::kFetching, kPlenty).ahead.end);
        }
    }
    EXPECT_EQ(window.sequential_streams(), 1U);
    EXPECT_GE(end, 320 + kPlenty - 8);
}

TEST(ReadWindow, ReportsConsumedBlocksOnceAndBehindReorderedReads) {
    ReadWindow window(10'000);
    std::uint64_t next = 0;
    for (std::uint64_t block = 0; block < 300; ++block) {
        const ReadPlan plan = window.on_read(block * kMiB, kMiB, Found::kFetching, kPlenty);
        if (!plan.consumed.empty()) {
            EXPECT_EQ(plan.consumed.begin, next);
            EXPECT_LE(plan.consumed.end + ReadWindow::kNewStreamReorderedBlocks, block + 1);
            next = plan.consumed.end;
        }
    }
    EXPECT_EQ(next, 300 - ReadWindow::kReorderedBlocks);
}

TEST(ReadWindow, ReadingTheSameBlocksAgainDoesNotGrow) {
    ReadWindow window(10'000);
    static_cast<void>(window.on_read(0, kMiB, Found::kAbsent, kPlenty));
    std::uint64_t end = 0;
    for (int i = 0; i < 100; ++i) {
        end = std::max(end, window.on_read(0, kMiB, Found::kFetching, kPlenty).ahead.end);
    }
    EXPECT_LE(end, 1 + ReadWindow::kFirstWindow);
}

TEST(ReadWindow, JumpsBackStartASecondStream) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 200 * kMiB, kMiB));
    const auto plans = walk(window, 10 * kMiB, 14 * kMiB, kMiB, Found::kAbsent);
    EXPECT_EQ(window.sequential_streams(), 2U);
    EXPECT_GT(furthest(plans), 14U);
    EXPECT_LT(furthest(plans), 200U);
}

TEST(ReadWindow, RandomReadsFetchOnlyTheirOwnBlocks) {
    ReadWindow window(1'000'000);
    std::mt19937_64 random(7);
    std::uint64_t ahead = 0;
    for (int i = 0; i < 1000; ++i) {
        ahead += window.on_read(random() % (999'000 * kMiB), 256 << 10, Found::kAbsent, kPlenty).ahead.count();
    }
    EXPECT_LT(ahead, 50U);
}

TEST(ReadWindow, WalksBackwardsFetchNeighbourhoods) {
    ReadWindow window(10'000);
    std::uint64_t begin = 5'000;
    int waits = 0;
    for (std::uint64_t block = 5'000; block > 4'000; --block) {
        const bool there = block - 1 >= begin;
        waits += there ? 0 : 1;
        const ReadPlan plan = window.on_read((block - 1) * kMiB, kMiB, there ? Found::kReady : Found::kAbsent, kPlenty);
        begin = std::min({begin, block - 1, plan.ahead.empty() ? begin : plan.ahead.begin});
    }
    EXPECT_LT(waits, 1000 / 8);
}

TEST(ReadWindow, StepsThroughTheFileFetchNeighbourhoods) {
    // 256 KiB of every 3 MiB.
    ReadWindow window(10'000);
    std::vector<bool> there(10'000, false);
    int waits = 0;
    for (std::uint64_t block = 0; block < 3'000; block += 3) {
        waits += there[block] ? 0 : 1;
        const ReadPlan plan =
            window.on_read(block * kMiB + 1000, 256 << 10, there[block] ? Found::kReady : Found::kAbsent, kPlenty);
        for (std::uint64_t b = plan.ahead.begin; b < plan.ahead.end; ++b) {
            there[b] = true;
        }
    }
    EXPECT_LT(waits, 300);
}

TEST(ReadWindow, ShrinksWhereMemoryDidNotSuffice) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    ReadPlan plan;
    std::uint64_t block = 100;
    while (plan.ahead.empty()) {
        plan = window.on_read(block++ * kMiB, kMiB, Found::kFetching, kPlenty);
    }
    window.not_fetched(plan, plan.ahead.begin, true);
    // What was not fetched is asked for again once it lies within half of the former window.
    const auto plans = walk(window, block * kMiB, (block + 150) * kMiB, kMiB, Found::kReady);
    const auto next = std::find_if(plans.begin(), plans.end(), [](const ReadPlan& p) { return !p.ahead.empty(); });
    ASSERT_NE(next, plans.end());
    EXPECT_EQ(next->ahead.begin, plan.ahead.begin);
    EXPECT_LE(next->ahead.begin, block + static_cast<std::uint64_t>(next - plans.begin()) + kPlenty / 2);
}

TEST(ReadWindow, KeepsItsSizeWhereEnoughRequestsAreUnderWay) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    ReadPlan plan;
    std::uint64_t block = 100;
    while (plan.ahead.empty()) {
        plan = window.on_read(block++ * kMiB, kMiB, Found::kFetching, kPlenty);
    }
    window.not_fetched(plan, plan.ahead.begin, false);
    const ReadPlan next = window.on_read(block * kMiB, kMiB, Found::kReady, kPlenty);
    EXPECT_EQ(next.ahead.begin, plan.ahead.begin);
    EXPECT_GE(next.ahead.end, plan.ahead.end);
}

TEST(ReadWindow, AsksAgainForWhatWasGivenUp) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    const ReadPlan plan = window.on_read(100 * kMiB, kMiB, Found::kAbsent, kPlenty);
    EXPECT_EQ(plan.ahead.begin, 101U);
}

TEST(ReadWindow, ForgottenStreamsNameWhatTheyHadAskedFor) {
    ReadWindow window(1'000'000);
    static_cast<void>(walk(window, 0, 4 * kMiB, kMiB));
    const BlockSpan ahead = window.outstanding().front();
    BlockSpan abandoned;
    for (std::uint64_t stream = 1; stream <= ReadWindow::kStreams; ++stream) {
        for (std::uint64_t step = 0; step < 4; ++step) {
            const ReadPlan plan = window.on_read((stream * 10'000 + step) * kMiB, kMiB, Found::kFetching, kPlenty);
            if (abandoned.empty() && !plan.abandoned.empty()) {
                abandoned = plan.abandoned.front();
            }
        }
    }
    EXPECT_EQ(abandoned, ahead);
}

std::vector<BlockSpan> abandoned_by(const std::vector<ReadPlan>& plans) {
    std::vector<BlockSpan> spans;
    for (const ReadPlan& plan : plans) {
        spans.insert(spans.end(), plan.abandoned.begin(), plan.abandoned.end());
    }
    return spans;
}

TEST(ReadWindow, WhatAStoppedStreamHadAheadIsGivenUpOnce) {
    ReadWindow window(1'000'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    const BlockSpan ahead = window.outstanding().front();
    // In reads and in bytes: a thread that copies what it read comes back after others have read many small pieces.
    EXPECT_TRUE(abandoned_by(walk(window, 500'000 * kMiB, 500'100 * kMiB, 128 << 10)).empty());
    EXPECT_EQ(abandoned_by(walk(window, 500'100 * kMiB, 500'800 * kMiB, kMiB)), std::vector{ahead});
    EXPECT_EQ(window.sequential_streams(), 1U);
    EXPECT_EQ(window.outstanding().size(), 1U);
    // Should it go on, it goes on as it was.
    const ReadPlan plan = window.on_read(100 * kMiB, kMiB, Found::kAbsent, kPlenty);
    EXPECT_EQ(plan.ahead.begin, 101U);
    EXPECT_GE(plan.ahead.count(), kPlenty / 2 - ReadWindow::kMaxBlocksPerRequest);
}

TEST(ReadWindow, WhatAnotherStreamComesByIsNotGivenUp) {
    ReadWindow window(1'000'000);
    static_cast<void>(walk(window, 300 * kMiB, 304 * kMiB, kMiB));
    ASSERT_LT(window.outstanding().front().end, 400U);
    // Has all that the other had ahead of it, and goes on; the other stops.
    static_cast<void>(walk(window, 0, 250 * kMiB, kMiB));
    ASSERT_EQ(window.outstanding().size(), 2U);
    for (std::uint64_t read = 0; read < ReadWindow::kActiveReads * 2; ++read) {
        EXPECT_TRUE(window.on_read(249 * kMiB, kMiB, Found::kReady, kPlenty).abandoned.empty());
    }
    EXPECT_EQ(window.outstanding().size(), 1U);
    // Nor when it has to make room for yet others.
    static_cast<void>(walk(window, 304 * kMiB, 308 * kMiB, kMiB));
    for (std::uint64_t stream = 1; stream <= ReadWindow::kStreams; ++stream) {
        static_cast<void>(window.on_read(249 * kMiB, kMiB, Found::kReady, kPlenty));
        const auto plans = walk(window, stream * 10'000 * kMiB, (stream * 10'000 + 2) * kMiB, kMiB);
        for (const BlockSpan& span : abandoned_by(plans)) {
            EXPECT_GE(span.begin, 10'000U);
        }
    }
}

// How many requests fetch what the plans ask for, each block once.
std::uint64_t requests_of(const std::vector<ReadPlan>& plans, std::uint64_t blocks) {
    std::vector<bool> there(blocks, false);
    std::uint64_t requests = 0;
    for (const ReadPlan& plan : plans) {
        std::uint64_t in_request = plan.blocks_per_request;
        for (std::uint64_t block = plan.ahead.begin; block < plan.ahead.end; ++block) {
            if (there[block]) {
                in_request = plan.blocks_per_request;
            } else if (in_request == plan.blocks_per_request) {
                ++requests;
                in_request = 1;
            } else {
                ++in_request;
            }
            there[block] = true;
        }
    }
    return requests;
}

// DCP looks at each tensor's head and tail before it reads it; the kernel reads on behind each look, and does not ask
// for that again when the walk comes by.
TEST(ReadWindow, AWalkKeepsItsWindowWhereProbesHadBegunAStream) {
    constexpr std::uint64_t kTensor = 32 * kMiB;
    constexpr std::uint64_t kBlocks = 1024;
    ReadWindow window(kBlocks);
    std::vector<ReadPlan> plans = walk(window, 0, 4 * kTensor, 128 << 10);
    for (std::uint64_t begin = 4 * kTensor; begin < kBlocks * kMiB; begin += kTensor) {
        const std::uint64_t end = begin + kTensor;
        plans.push_back(window.on_read(end - 8192, 4096, Found::kReady, kPlenty));
        plans.push_back(window.on_read(end - 4096, 4096 + (128 << 10), Found::kReady, kPlenty));
        const auto tensor = walk(window, begin + (128 << 10), end, 128 << 10, Found::kReady);
        plans.insert(plans.end(), tensor.begin(), tensor.end());
    }
    EXPECT_LT(requests_of(plans, kBlocks), kBlocks / ReadWindow::kMaxBlocksPerRequest * 3 / 2);
}

// safetensors looks at each tensor before it reads the first.
TEST(ReadWindow, ALookAtEachTensorLeavesTheWalkItsShare) {
    constexpr std::uint64_t kTensor = 64 * kMiB;
    ReadWindow window(4096);
    for (std::uint64_t begin = 0; begin < 4096 * kMiB; begin += kTensor) {
        static_cast<void>(walk(window, begin, begin + 2 * kMiB, 128 << 10, Found::kReady));
    }
    static_cast<void>(walk(window, 2 * kMiB, 64 * kMiB, kMiB));
    EXPECT_EQ(window.sequential_streams(), 1U);
    EXPECT_GE(window.outstanding().front().count(), kPlenty - ReadWindow::kMaxBlocksPerRequest);
}

TEST(ReadWindow, StreamsThatMeetAreOneAndLeaveNothingOut) {
    ReadWindow window(10'000);
    std::vector<ReadPlan> plans = walk(window, 0, 100 * kMiB, kMiB);
    // Beyond all that the walk has asked for.
    const auto other = walk(window, 600 * kMiB, 606 * kMiB, kMiB);
    EXPECT_EQ(window.sequential_streams(), 2U);
    const auto on = walk(window, 100 * kMiB, 700 * kMiB, kMiB);
    EXPECT_EQ(window.sequential_streams(), 1U);
    plans.insert(plans.end(), other.begin(), other.end());
    plans.insert(plans.end(), on.begin(), on.end());
    std::vector<bool> there(10'000, false);
    for (const ReadPlan& plan : plans) {
        std::fill(there.begin() + static_cast<std::ptrdiff_t>(plan.ahead.begin),
                  there.begin() + static_cast<std::ptrdiff_t>(plan.ahead.end), true);
    }
    // What the other stream itself read first is the first that nobody asked for ahead.
    EXPECT_EQ(std::find(there.begin() + 1, there.end(), false) - there.begin(),
              static_cast<std::ptrdiff_t>(furthest(plans)));
}

TEST(ReadWindow, OfStreamsThatMeetTheLargerWindowIsKept) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    static_cast<void>(walk(window, 118 * kMiB, 120 * kMiB, 128 << 10));
    static_cast<void>(walk(window, 120 * kMiB, 131 * kMiB, 128 << 10, Found::kReady));
    ASSERT_EQ(window.outstanding().size(), 2U);
    // Nearer to the second.
    EXPECT_EQ(window.on_read(116 * kMiB, kMiB, Found::kReady, kPlenty).ahead.end, 117 + kPlenty);
    EXPECT_EQ(window.outstanding().size(), 1U);
}

TEST(ReadWindow, TheRestOfAPlanIsAskedForByTheStreamThatAbsorbedIt) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    static_cast<void>(walk(window, 130 * kMiB, 131 * kMiB, kMiB));
    const ReadPlan plan = window.on_read(131 * kMiB, kMiB, Found::kFetching, kPlenty);
    ASSERT_FALSE(plan.ahead.empty());
    static_cast<void>(walk(window, 100 * kMiB, 131 * kMiB, kMiB));
    ASSERT_EQ(window.outstanding().size(), 1U);
    window.not_fetched(plan, 133, false);
    const ReadPlan next = window.on_read(131 * kMiB, kMiB, Found::kReady, kPlenty);
    EXPECT_EQ(next.ahead.begin, 133U);
}

TEST(ReadWindow, AStreamThatBeginsTakesNoMoreThanItsPart) {
    constexpr std::uint64_t kWalks = 12;
    ReadWindow window(1'000'000);
    for (std::uint64_t stream = 1; stream <= kWalks; ++stream) {
        static_cast<void>(walk(window, stream * 10'000 * kMiB, (stream * 10'000 + 10) * kMiB, kMiB));
    }
    EXPECT_LE(furthest(walk(window, 500'000 * kMiB, 500'003 * kMiB, 128 << 10)), 500'003U + kPlenty / (kWalks + 1));
}

std::uint64_t blocks_per_request(std::uint64_t limit, RequestLimits requests) {
    ReadWindow window(10'000);
    ReadPlan plan;
    for (std::uint64_t block = 0; block < 400; ++block) {
        plan = window.on_read(block * kMiB, kMiB, Found::kFetching, limit, requests);
    }
    return plan.blocks_per_request;
}

TEST(ReadWindow, InACrowdEachMakesFewerRequests) {
    EXPECT_EQ(blocks_per_request(24, {false, 0}), 1U);
    EXPECT_EQ(blocks_per_request(24, {true, 0}), 4U);
    EXPECT_EQ(blocks_per_request(6, {true, 0}), 1U);
    EXPECT_EQ(blocks_per_request(kPlenty, {true, 0}), blocks_per_request(kPlenty, {false, 0}));
}

TEST(ReadWindow, AsksForMoreAtOnceWhereTheStoreTakesFewerRequests) {
    EXPECT_EQ(blocks_per_request(192, {false, 0}), 4U);
    EXPECT_EQ(blocks_per_request(192, {false, 64}), 12U);
    EXPECT_EQ(blocks_per_request(192, {false, 4}), 48U);
    // One is read while the other comes.
    EXPECT_EQ(blocks_per_request(192, {false, 2}), 96U);
    // What carries no data takes turns with it.
    EXPECT_EQ(blocks_per_request(192, {false, 1}), 32U);
}

TEST(ReadWindow, AsksForANeighbourhoodAtOnceWhereTheStoreTakesFewerRequests) {
    for (const int slowed_to : {0, 4}) {
        ReadWindow window(10'000);
        std::uint64_t largest = 0;
        for (std::uint64_t block = 5'000; block > 4'900; --block) {
            const ReadPlan plan = window.on_read(block * kMiB, kMiB, Found::kAbsent, 192, {false, slowed_to});
            EXPECT_EQ(plan.blocks_per_request, slowed_to > 0 && !plan.ahead.empty() ? plan.ahead.count() : 1U);
            largest = std::max(largest, plan.ahead.count());
        }
        EXPECT_GT(largest, 1U);
    }
}

TEST(ReadWindow, TwoWalksNearToEachOtherStayTwo) {
    ReadWindow window(10'000);
    static_cast<void>(walk(window, 0, 100 * kMiB, kMiB));
    static_cast<void>(walk(window, 120 * kMiB, 128 * kMiB, kMiB));
    std::uint64_t behind = 100;
    for (std::uint64_t ahead = 128; ahead < 300; ++ahead) {
        static_cast<void>(window.on_read(ahead * kMiB, kMiB, Found::kFetching, kPlenty));
        // Until it is twelve blocks behind.
        for (int read = 0; read < 2 && behind + 12 <= ahead; ++read) {
            static_cast<void>(window.on_read(behind++ * kMiB, kMiB, Found::kFetching, kPlenty));
        }
    }
    EXPECT_EQ(window.sequential_streams(), 2U);
}

}  // namespace
}  // namespace ckptfs
