// SPDX-License-Identifier: Apache-2.0
#include "s3/concurrency_limit.h"

#include <gtest/gtest.h>

namespace ckptfs::s3 {
namespace {

using std::chrono::seconds;

SteadyTime at(int second) {
    return SteadyTime(seconds(second));
}

TEST(ConcurrencyLimit, StartsAtItsMaximum) {
    EXPECT_EQ(ConcurrencyLimit(1, 64).value(), 64);
}

TEST(ConcurrencyLimit, HalvesDownToItsMinimum) {
    ConcurrencyLimit limit(4, 64);
    int second = 0;
    for (const int expected : {32, 16, 8, 4, 4}) {
        ++second;
        limit.on_slow_down(at(second), at(second));
        EXPECT_EQ(limit.value(), expected);
    }
}

TEST(ConcurrencyLimit, HalvesOnceForARefusedBurst) {
    ConcurrencyLimit limit(1, 64);
    for (int request = 0; request < 64; ++request) {
        limit.on_slow_down(at(0), at(1));
    }
    EXPECT_EQ(limit.value(), 32);
    limit.on_slow_down(at(2), at(3));
    EXPECT_EQ(limit.value(), 16);
}

TEST(ConcurrencyLimit, GrowsByOneARoundTrip) {
    ConcurrencyLimit limit(1, 64);
    limit.on_slow_down(at(0), at(1));
    for (int success = 0; success < 33; ++success) {
        limit.on_success();
    }
    EXPECT_EQ(limit.value(), 33);
}

TEST(ConcurrencyLimit, NeverExceedsItsMaximum) {
    ConcurrencyLimit limit(1, 8);
    limit.on_slow_down(at(0), at(1));
    for (int success = 0; success < 1'000; ++success) {
        limit.on_success();
    }
    EXPECT_EQ(limit.value(), 8);
}

}  // namespace
}  // namespace ckptfs::s3
