// SPDX-License-Identifier: Apache-2.0
#include "s3sim/pacer.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

using std::chrono::milliseconds;

constexpr double kMegabyte = 1e6;
const TimePoint kStart = TimePoint() + std::chrono::hours(1);

double seconds_for(Pacer& pacer, std::uint64_t bytes, Duration late_by = {}) {
    TimePoint now = kStart;
    pacer.restart(now);
    while (bytes > 0) {
        const std::uint64_t quantum = std::min(bytes, pacer.quantum());
        now = std::max(now, pacer.reserve(quantum, now) + late_by);
        bytes -= quantum;
    }
    return std::chrono::duration<double>(now - kStart).count();
}

TEST(Pacer, TakesTheTimeThatTheRateSays) {
    Pacer pacer(90 * kMegabyte);
    EXPECT_NEAR(seconds_for(pacer, 16 << 20), (16 << 20) / (90 * kMegabyte), 1e-6);
}

TEST(Pacer, MakesGoodTimersThatAreLate) {
    Pacer pacer(90 * kMegabyte);
    EXPECT_NEAR(seconds_for(pacer, 16 << 20, milliseconds(2)), (16 << 20) / (90 * kMegabyte), 0.003);
}

TEST(Pacer, GivesNoCreditForSilenceBeforeATransfer) {
    Pacer pacer(1 * kMegabyte);
    pacer.restart(kStart);
    EXPECT_EQ(pacer.reserve(1000, kStart), kStart + milliseconds(1));
}

TEST(Pacer, LimitsTheCreditForLongDelays) {
    Pacer pacer(1 * kMegabyte);
    pacer.restart(kStart);
    const TimePoint later = kStart + std::chrono::seconds(10);
    EXPECT_GT(pacer.reserve(1'000'000, later), later + milliseconds(900));
}

TEST(Pacer, WithoutLimitNeverWaits) {
    Pacer pacer;
    EXPECT_EQ(pacer.reserve(std::uint64_t{1} << 40, kStart), kStart);
}

TEST(Pacer, QuantumGrowsWithTheRateWithinBounds) {
    EXPECT_EQ(Pacer(1000).quantum(), 16U * 1024);
    EXPECT_EQ(Pacer(90 * kMegabyte).quantum(), 360'000U);
    EXPECT_EQ(Pacer(1e12).quantum(), 512U * 1024);
}

TEST(SharedPacer, GrantsInTheOrderOfReservation) {
    SharedPacer pacer;
    pacer.set_rate(50 * kMegabyte);
    const TimePoint first = pacer.reserve(500'000, kStart);
    const TimePoint second = pacer.reserve(500'000, kStart);
    EXPECT_EQ(second - first, milliseconds(10));
}

}  // namespace
}  // namespace ckptfs::s3sim
