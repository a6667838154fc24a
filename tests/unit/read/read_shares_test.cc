// SPDX-License-Identifier: Apache-2.0
#include "read/read_shares.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

using std::chrono::seconds;

TEST(ReadShares, OneReaderHasEverything) {
    ReadShares shares(192);
    const int reader = 0;
    EXPECT_EQ(shares.share(&reader, 0, SteadyTime{}), 192U);
    EXPECT_EQ(shares.share(&reader, 1, SteadyTime{}), 192U);
    EXPECT_EQ(shares.share(&reader, 4, SteadyTime{}), 192U);
}

TEST(ReadShares, StreamsShareEqually) {
    ReadShares shares(192);
    const int a = 0;
    const int b = 0;
    static_cast<void>(shares.share(&a, 1, SteadyTime{}));
    EXPECT_EQ(shares.share(&b, 1, SteadyTime{}), 96U);
    EXPECT_EQ(shares.share(&a, 1, SteadyTime{}), 96U);
    EXPECT_EQ(shares.share(&b, 3, SteadyTime{}), 144U);
    EXPECT_EQ(shares.share(&a, 1, SteadyTime{}), 48U);
}

TEST(ReadShares, WhoLeavesOrStopsReadingGivesItsShareBack) {
    ReadShares shares(192);
    const int a = 0;
    const int b = 0;
    const int c = 0;
    const SteadyTime start{};
    static_cast<void>(shares.share(&a, 1, start));
    static_cast<void>(shares.share(&b, 1, start));
    EXPECT_EQ(shares.share(&c, 1, start), 64U);
    shares.leave(&b);
    shares.leave(&b);
    EXPECT_EQ(shares.share(&c, 1, start + seconds(1)), 96U);
    EXPECT_EQ(shares.share(&c, 1, start + seconds(5)), 192U);
}

}  // namespace
}  // namespace ckptfs
