// SPDX-License-Identifier: Apache-2.0
#include "daemon/traffic.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

SteadyTime at(int milliseconds) {
    return SteadyTime{} + Milliseconds(milliseconds);
}

TEST(TrafficMeter, HasNoRateBeforeItsSecondSample) {
    TrafficMeter meter;
    EXPECT_EQ(meter.rates(), Traffic{});
    meter.add(at(0), {1, 2, 3, 4});
    EXPECT_EQ(meter.rates(), Traffic{});
    meter.add(at(0), {2, 3, 4, 5});
    EXPECT_EQ(meter.rates(), Traffic{}) << "no time has passed";
}

TEST(TrafficMeter, TellsBytesASecond) {
    TrafficMeter meter;
    meter.add(at(0), {0, 100, 0, 0});
    meter.add(at(500), {1000, 100, 20, 4});
    EXPECT_EQ(meter.rates(), (Traffic{2000, 0, 40, 8}));
}

TEST(TrafficMeter, ForgetsWhatWasLongAgo) {
    TrafficMeter meter;
    meter.add(at(0), {});
    for (int second = 1; second <= static_cast<int>(TrafficMeter::kSamples); ++second) {
        meter.add(at(1000 * second), {5000, 0, 0, 0});
    }
    EXPECT_EQ(meter.rates().written, 0U);
}

}  // namespace
}  // namespace ckptfs
