// SPDX-License-Identifier: Apache-2.0
#include "config/values.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

TEST(Values, Sizes) {
    EXPECT_EQ(parse_size("4096"), 4096U);
    EXPECT_EQ(parse_size("64M"), std::uint64_t{64} << 20);
    EXPECT_EQ(parse_size("2GiB"), std::uint64_t{2} << 30);
    for (const char* wrong : {"", "M", "-1", "1.5G", "64MB", "99999999999T", "1 M"}) {
        EXPECT_FALSE(parse_size(wrong)) << wrong;
    }
}

TEST(Values, Durations) {
    EXPECT_EQ(parse_duration("30"), Milliseconds(30'000));
    EXPECT_EQ(parse_duration("250ms"), Milliseconds(250));
    EXPECT_EQ(parse_duration("5m"), Milliseconds(300'000));
    EXPECT_EQ(parse_duration("0"), Milliseconds(0));
    for (const char* wrong : {"", "s", "-5s", "5 s", "9999999h"}) {
        EXPECT_FALSE(parse_duration(wrong)) << wrong;
    }
}

TEST(Values, ModesNumbersSwitchesAndLists) {
    EXPECT_EQ(parse_mode("0640"), 0640U);
    EXPECT_EQ(parse_mode("755"), 0755U);
    EXPECT_FALSE(parse_mode("1777"));
    EXPECT_FALSE(parse_mode("8"));
    EXPECT_EQ(parse_number("8", 1, 64), 8U);
    EXPECT_FALSE(parse_number("0", 1, 64));
    EXPECT_FALSE(parse_number("65", 1, 64));
    EXPECT_EQ(parse_switch("yes"), true);
    EXPECT_EQ(parse_switch("off"), false);
    EXPECT_FALSE(parse_switch("maybe"));
    EXPECT_EQ(parse_list("a,,b"), (std::vector<std::string>{"a", "b"}));
}

TEST(Values, UsersAndGroupsHaveNumbersAndNames) {
    EXPECT_EQ(parse_user("1000").value(), 1000U);
    EXPECT_EQ(parse_user("root").value(), 0U);
    EXPECT_EQ(parse_group("root").value(), 0U);
    EXPECT_FALSE(parse_user("no such user"));
    EXPECT_FALSE(parse_group("-1"));
    EXPECT_FALSE(parse_user("4294967295"));
}

TEST(Values, AddressesAreOnLoopbackUnlessSaidOtherwise) {
    EXPECT_EQ(parse_address("9464"), "127.0.0.1:9464");
    EXPECT_EQ(parse_address(":9464"), "127.0.0.1:9464");
    EXPECT_EQ(parse_address("0.0.0.0:9464"), "0.0.0.0:9464");
    EXPECT_EQ(parse_address("[::1]:9464"), "[::1]:9464");
    for (const char* wrong : {"", ":", "host", "host:", "1:2:3", "host:99999", "host:port", "h,1:2", "h:443s", "+80"}) {
        EXPECT_FALSE(parse_address(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace ckptfs
