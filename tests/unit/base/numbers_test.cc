// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ckptfs {
namespace {

TEST(Numbers, AreDigitsAndNothingElse) {
    EXPECT_EQ(whole_number<int>("0"), 0);
    EXPECT_EQ(whole_number<int>("-12"), -12);
    EXPECT_EQ(whole_number<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
    for (const char* text : {"", " 1", "1 ", "+1", "0x1", "1.0", "1,000", "--1", "-"}) {
        EXPECT_EQ(whole_number<int>(text), std::nullopt) << '"' << text << '"';
    }
}

TEST(Numbers, ThatDoNotFitAreNone) {
    EXPECT_EQ(whole_number<std::uint64_t>("18446744073709551616"), std::nullopt);
    EXPECT_EQ(whole_number<std::uint64_t>("-1"), std::nullopt);
    EXPECT_EQ(whole_number<int>("2147483648"), std::nullopt);
}

TEST(Numbers, HaveTheBaseThatIsAskedFor) {
    EXPECT_EQ(whole_number<unsigned>("0644", 8), 0644U);
    EXPECT_EQ(whole_number<unsigned>("0648", 8), std::nullopt);
    EXPECT_EQ(whole_number<unsigned>("fF", 16), 255U);
}

TEST(Numbers, AreTakenFromTheirText) {
    std::string_view text = "64MiB";
    EXPECT_EQ(take_number<int>(text), 64);
    EXPECT_EQ(text, "MiB");
    EXPECT_EQ(take_number<int>(text), std::nullopt);
    EXPECT_EQ(text, "MiB");
}

}  // namespace
}  // namespace ckptfs
