// SPDX-License-Identifier: Apache-2.0
#include "read/read_shares.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

using std::chrono::seconds;
using Share = ReadShares::Share;

TEST(ReadShares, OneReaderHasEverything) {
    ReadShares shares(192);
    const int reader = 0;
    EXPECT_EQ(shares.share(&reader, 0, SteadyTime{}), (Share{192, 0}));
    EXPECT_EQ(shares.share(&reader, 1, SteadyTime{}), (Share{192, 0}));
    EXPECT_EQ(shares.share(&reader, 4, SteadyTime{}), (Share{192, 0}));
}

TEST(ReadShares, StreamsShareEqually) {
    ReadShares shares(192);
    const int a = 0;
    const int b = 0;
    static_cast<void>(shares.share(&a, 1, SteadyTime{}));
    EXPECT_EQ(shares.share(&b, 1, SteadyTime{}), (Share{96, 1}));
    EXPECT_EQ(shares.share(&a, 1, SteadyTime{}), (Share{96, 1}));
    EXPECT_EQ(shares.share(&b, 3, SteadyTime{}), (Share{144, 1}));
    EXPECT_EQ(shares.share(&a, 1, SteadyTime{}), (Share{48, 3}));
}

TEST(ReadShares, WhoLeavesOrStopsReadingGivesItsShareBack) {
    ReadShares shares(192);
    const int a = 0;
    const int b = 0;
    const int c = 0;
    const SteadyTime start{};
    static_cast<void>(shares.share(&a, 1, start));
    static_cast<void>(shares.share(&b, 1, start));
    EXPECT_EQ(shares.share(&c, 1, start), (Share{64, 2}));
    shares.leave(&b);
    shares.leave(&b);
    EXPECT_EQ(shares.share(&c, 1, start + seconds(1)), (Share{96, 1}));
    EXPECT_EQ(shares.share(&c, 1, start + seconds(5)), (Share{192, 0}));
}

}  // namespace
}  // namespace ckptfs
