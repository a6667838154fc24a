// SPDX-License-Identifier: Apache-2.0
#include "base/memory_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr MemoryUse kAllUses[] = {MemoryUse::kReceive, MemoryUse::kWrite, MemoryUse::kRead, MemoryUse::kCommit,
                                  MemoryUse::kEncode};

std::size_t& of(BuffersInUse& in_use, MemoryUse use) {
    return in_use[static_cast<std::size_t>(use)];
}

MemoryShares small_shares() {
    MemoryShares shares;
    shares.total = 10;
    shares.of = {MemoryShare{2, 3}, MemoryShare{2, 6}, MemoryShare{1, 5}, MemoryShare{1, 5}};
    return shares;
}

class SharesOfSize : public ::testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Mebibytes, SharesOfSize,
                         ::testing::Values(0, 1, 63, 64, 65, 71, 78, 92, 100, 128, 256, 302, 1024, 8192, 262144));

TEST_P(SharesOfSize, AreSensible) {
    for (const int threads : {0, 1, 2, 8, 16, 64, 1000}) {
        for (const bool encodes : {false, true}) {
            const MemoryShares shares = memory_shares(GetParam() * kMiB, threads, encodes);
            SCOPED_TRACE(::testing::Message() << GetParam() << " MiB, " << threads << " threads, encodes: " << encodes);
            const std::uint64_t budget = std::max(GetParam() * kMiB, kSmallestMaxMemory);
            EXPECT_LE(shares.total * BufferPool::kBufferSize, budget);
            EXPECT_GT((shares.total + 1) * BufferPool::kBufferSize, budget);
            std::size_t reserves = 0;
            for (const MemoryUse use : kAllUses) {
                EXPECT_GE(shares[use].reserve, 1U);
                EXPECT_LE(shares[use].reserve, shares[use].cap);
                reserves += shares[use].reserve;
            }
            // Every cap can be reached while the others only have their reserves.
            for (const MemoryUse use : kAllUses) {
                EXPECT_LE(shares[use].cap + reserves - shares[use].reserve, shares.total);
            }
            // One part of 5 MiB with its ends inside frames.
            EXPECT_GE(shares[MemoryUse::kCommit].reserve, 7U);
            EXPECT_GE(shares[MemoryUse::kWrite].reserve, 7U);
            EXPECT_GE(shares[MemoryUse::kRead].reserve, 4U);
            // The largest part, which is a quarter of what file data may take, and a frame more.
            EXPECT_GE(shares[MemoryUse::kEncode].reserve,
                      encodes ? std::min<std::size_t>(shares.total * 3 / 16 + 1, 2048) : 4U);
            // All of it may have to come back from the disk; what it takes lies by less than two buffers above the
            // plan.
            EXPECT_GE(shares[MemoryUse::kCommit].cap, shares.total * 3 / 16 + 2);
            EXPECT_GE(shares[MemoryUse::kEncode].cap, shares.total * 3 / 16 + 2);
            // Writes that wait behind a commit let go of nothing before it has ended: they leave room for it.
            std::size_t left = shares.total - shares[MemoryUse::kReceive].cap;
            for (const MemoryUse use : {MemoryUse::kWrite, MemoryUse::kRead, MemoryUse::kEncode}) {
                left -= shares[use].reserve;
            }
            EXPECT_GE(left, shares.total * 3 / 16 + 2);
        }
    }
}

TEST(MemoryShares, GiveEveryThreadABufferAndParkedWritesSome) {
    EXPECT_GE(memory_shares(64 * kMiB, 2)[MemoryUse::kReceive].reserve, 2U + 8U);
    EXPECT_GE(memory_shares(64 * kMiB, 8)[MemoryUse::kReceive].reserve, 8U + 4U);
    EXPECT_GE(memory_shares(1024 * kMiB, 2)[MemoryUse::kReceive].reserve, 2U + 31U);
    EXPECT_GE(memory_shares(1024 * kMiB, 64)[MemoryUse::kReceive].reserve, 64U + 31U);
}

TEST(MemoryShares, LeaveMostOfALargeBudgetToWhoeverComes) {
    const MemoryShares shares = memory_shares(1024 * kMiB, 8);
    EXPECT_GE(shares[MemoryUse::kWrite].cap, shares.total * 3 / 4);
    EXPECT_GE(shares[MemoryUse::kRead].cap, shares.total / 2);
}

TEST(MayTake, StopsAtTheCap) {
    BuffersInUse in_use{};
    for (int taken = 0; taken < 3; ++taken) {
        ASSERT_TRUE(may_take(small_shares(), in_use, MemoryUse::kReceive));
        ++of(in_use, MemoryUse::kReceive);
    }
    EXPECT_FALSE(may_take(small_shares(), in_use, MemoryUse::kReceive));
}

TEST(MayTake, LeavesTheReservesOfOthers) {
    // 10 buffers: six written leave 4, of which 2 + 1 + 1 are reserved.
    BuffersInUse in_use{};
    of(in_use, MemoryUse::kWrite) = 6;
    EXPECT_TRUE(may_take(small_shares(), in_use, MemoryUse::kRead));
    of(in_use, MemoryUse::kRead) = 1;
    EXPECT_FALSE(may_take(small_shares(), in_use, MemoryUse::kRead));
    EXPECT_TRUE(may_take(small_shares(), in_use, MemoryUse::kReceive));
    EXPECT_TRUE(may_take(small_shares(), in_use, MemoryUse::kCommit));
}

TEST(MayTake, RefusesWhenNothingIsFree) {
    BuffersInUse in_use{};
    of(in_use, MemoryUse::kWrite) = 6;
    of(in_use, MemoryUse::kReceive) = 2;
    of(in_use, MemoryUse::kRead) = 1;
    of(in_use, MemoryUse::kCommit) = 1;
    for (const MemoryUse use : kAllUses) {
        EXPECT_FALSE(may_take(small_shares(), in_use, use));
    }
}

TEST(MayRecharge, NeedsRoomUnderTheCap) {
    BuffersInUse in_use{};
    of(in_use, MemoryUse::kReceive) = 1;
    of(in_use, MemoryUse::kWrite) = 5;
    EXPECT_TRUE(may_recharge(small_shares(), in_use, MemoryUse::kReceive, MemoryUse::kWrite));
    of(in_use, MemoryUse::kWrite) = 6;
    EXPECT_FALSE(may_recharge(small_shares(), in_use, MemoryUse::kReceive, MemoryUse::kWrite));
}

TEST(MayRecharge, KeepsTheReserveItLeaves) {
    // All ten are held; moving one of the two reserved ones would leave the reserve with nothing to refill it.
    BuffersInUse in_use{};
    of(in_use, MemoryUse::kReceive) = 2;
    of(in_use, MemoryUse::kWrite) = 3;
    of(in_use, MemoryUse::kRead) = 4;
    of(in_use, MemoryUse::kCommit) = 1;
    EXPECT_FALSE(may_recharge(small_shares(), in_use, MemoryUse::kReceive, MemoryUse::kWrite));
    EXPECT_TRUE(may_recharge(small_shares(), in_use, MemoryUse::kRead, MemoryUse::kWrite));
}

TEST(MayRecharge, ToTheSameUseIsAlwaysAllowed) {
    BuffersInUse in_use{};
    of(in_use, MemoryUse::kWrite) = 6;
    EXPECT_TRUE(may_recharge(small_shares(), in_use, MemoryUse::kWrite, MemoryUse::kWrite));
}

TEST(MemoryShares, AReserveCanAlwaysBeReachedWhateverTheOthersDo) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 50; ++round) {
        const MemoryShares shares = memory_shares((64 + random() % 512) * kMiB, static_cast<int>(1 + random() % 32));
        BuffersInUse in_use{};
        for (int step = 0; step < 2'000; ++step) {
            const MemoryUse use = kAllUses[random() % kMemoryUses];
            const MemoryUse other = kAllUses[random() % kMemoryUses];
            if (random() % 3 != 0 && may_take(shares, in_use, use)) {
                ++of(in_use, use);
            } else if (of(in_use, use) > 0 && may_recharge(shares, in_use, use, other)) {
                --of(in_use, use);
                ++of(in_use, other);
            }
            ASSERT_LE(std::accumulate(in_use.begin(), in_use.end(), std::size_t{0}), shares.total);
            for (const MemoryUse each : kAllUses) {
                ASSERT_TRUE(of(in_use, each) >= shares[each].reserve || may_take(shares, in_use, each));
            }
        }
    }
}

TEST(MemoryShares, WhatWaitsForADiskLeavesMostOfAnyUse) {
    for (const std::uint64_t memory : {std::uint64_t{64}, std::uint64_t{83}, std::uint64_t{256}, std::uint64_t{4096}}) {
        for (const bool encodes : {false, true}) {
            const MemoryShares shares = memory_shares(memory << 20, 8, encodes);
            BuffersInUse caps{};
            std::transform(shares.of.begin(), shares.of.end(), caps.begin(), [](const auto& of) { return of.cap; });
            const auto frames = static_cast<std::size_t>(frames_waiting_for_disk(caps));
            EXPECT_GE(frames, 1U);
            EXPECT_LE(frames, 32U);
            // A frame lies in two buffers at most.
            EXPECT_LE(2 * frames, shares[MemoryUse::kWrite].cap / 2);
            EXPECT_LE(2 * frames, shares[MemoryUse::kRead].cap / 2);
        }
    }
}

}  // namespace
}  // namespace ckptfs
