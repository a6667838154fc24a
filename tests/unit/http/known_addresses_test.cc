// SPDX-License-Identifier: Apache-2.0
#include "http/known_addresses.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptfs {
namespace {

using Addresses = std::vector<std::string>;
constexpr Milliseconds kShort{1};

class KnownAddressesTest : public ::testing::Test {
protected:
    Addresses instead(Milliseconds after) { return known_.instead_of_lookup("host:80", start_ + after); }

    KnownAddresses known_;
    const SteadyTime start_ = SteadyTime{} + Milliseconds(1'000'000);
};

TEST_F(KnownAddressesTest, ReplaceNoLookupThatWorks) {
    known_.connected("host:80", "192.0.2.1", true);
    EXPECT_EQ(instead(Milliseconds(0)), Addresses());
}

TEST_F(KnownAddressesTest, AreOfTheirHostOnly) {
    known_.connected("other:80", "192.0.2.1", true);
    known_.lookup_failed("host:80", start_);
    EXPECT_EQ(instead(kShort), Addresses()) << "never answered";
    known_.lookup_failed("other:80", start_);
    EXPECT_EQ(instead(kShort), Addresses());
    EXPECT_EQ(known_.instead_of_lookup("other:80", start_), Addresses{"192.0.2.1"});
}

TEST_F(KnownAddressesTest, ReplaceLookupsForAWhileAfterOneThatFailed) {
    known_.connected("host:80", "192.0.2.1", true);
    known_.connected("host:80", "192.0.2.2", true);
    known_.connected("host:80", "192.0.2.1", true);
    known_.lookup_failed("host:80", start_);
    const Addresses both{"192.0.2.2", "192.0.2.1"};
    EXPECT_EQ(instead(kShort), both);
    // That they work says nothing of the name server.
    known_.connected("host:80", "192.0.2.1", false);
    EXPECT_EQ(instead(KnownAddresses::kWithoutLookup - kShort), both);
    EXPECT_EQ(instead(KnownAddresses::kWithoutLookup), Addresses()) << "one tries";
    EXPECT_EQ(instead(KnownAddresses::kWithoutLookup), both) << "and only one";
    EXPECT_EQ(instead(KnownAddresses::kWithoutLookup + KnownAddresses::kLongestLookup), Addresses());
    known_.connected("host:80", "192.0.2.3", true);
    EXPECT_EQ(instead(KnownAddresses::kWithoutLookup + KnownAddresses::kLongestLookup), Addresses());
}

TEST_F(KnownAddressesTest, AreForgottenWhenNoneCanBeReached) {
    known_.connected("host:80", "192.0.2.1", true);
    known_.lookup_failed("host:80", start_);
    known_.unreachable("host:80");
    EXPECT_EQ(instead(kShort), Addresses());
}

TEST_F(KnownAddressesTest, AreBounded) {
    for (int i = 0; i < 1000; ++i) {
        known_.connected("host:80", "192.0.2." + std::to_string(i), true);
    }
    known_.lookup_failed("host:80", start_);
    const Addresses left = instead(kShort);
    ASSERT_EQ(left.size(), KnownAddresses::kMostOfHost);
    EXPECT_EQ(left.back(), "192.0.2.999");
    for (int i = 0; i < 1000; ++i) {
        known_.connected("host" + std::to_string(i), "192.0.2.1", true);
        known_.lookup_failed("host" + std::to_string(i), start_);
    }
    EXPECT_EQ(known_.instead_of_lookup("host999", start_), Addresses());
    EXPECT_EQ(instead(kShort), left);
}

}  // namespace
}  // namespace ckptfs
