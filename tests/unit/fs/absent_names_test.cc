// SPDX-License-Identifier: Apache-2.0
#include "fs/names/absent_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace ckptfs::fs {
namespace {

using std::chrono::seconds;

constexpr NodeId kDirectory = 7;
constexpr NodeId kOther = 8;

SteadyTime at(int second) {
    return SteadyTime(seconds(100 + second));
}

TEST(AbsentNames, AreThoseThatAListDoesNotShow) {
    AbsentNames names;
    EXPECT_FALSE(names.has_not(kDirectory, "new", at(0)));
    names.listed(names.listing_begins(kDirectory, at(1)), {"there"});
    EXPECT_TRUE(names.has_not(kDirectory, "new", at(1)));
    EXPECT_FALSE(names.has_not(kDirectory, "there", at(1)));
    EXPECT_FALSE(names.has_not(kDirectory, "new", at(2))) << "it is too old";
    EXPECT_FALSE(names.has_not(kOther, "new", at(1)));
}

TEST(AbsentNames, AreNotThoseThatAreMadeDuringTheListOrAfter) {
    AbsentNames names;
    const auto listing = names.listing_begins(kDirectory, at(1));
    names.taken(kDirectory, "during");
    names.taken(kOther, "elsewhere");
    names.listed(listing, {});
    names.taken(kDirectory, "after");
    EXPECT_FALSE(names.has_not(kDirectory, "during", at(1)));
    EXPECT_FALSE(names.has_not(kDirectory, "after", at(1)));
    EXPECT_TRUE(names.has_not(kDirectory, "elsewhere", at(1)));
}

TEST(AbsentNames, OfTwoListsTheLaterCounts) {
    AbsentNames names;
    const auto earlier = names.listing_begins(kDirectory, at(1));
    names.listed(names.listing_begins(kDirectory, at(2)), {"there"});
    names.listed(earlier, {});
    EXPECT_FALSE(names.has_not(kDirectory, "there", at(1)));
    names.listed(names.listing_begins(kDirectory, at(3)), {});
    EXPECT_TRUE(names.has_not(kDirectory, "there", at(3)));
}

TEST(AbsentNames, AreUnknownInADirectoryThatIsTooLarge) {
    AbsentNames names;
    names.is_too_large(names.listing_begins(kDirectory, at(1)));
    EXPECT_FALSE(names.has_not(kDirectory, "new", at(1)));
    EXPECT_TRUE(names.was_too_large(kDirectory, at(1)));
    EXPECT_FALSE(names.was_too_large(kDirectory, at(2)));
    EXPECT_FALSE(names.was_too_large(kOther, at(1)));
}

TEST(AbsentNames, AreForgottenWithTheDirectory) {
    AbsentNames names;
    names.listed(names.listing_begins(kDirectory, at(1)), {});
    const auto listing = names.listing_begins(kOther, at(1));
    EXPECT_EQ(names.directories().size(), 2U);
    names.forget(kDirectory);
    names.forget(kOther);
    names.listed(listing, {});
    EXPECT_FALSE(names.has_not(kDirectory, "new", at(1)));
    EXPECT_FALSE(names.has_not(kOther, "new", at(1))) << "the list was of what had another name then";
}

TEST(AbsentNames, AreOfABoundedNumber) {
    constexpr NodeId kDirectories = 200;
    AbsentNames names;
    for (NodeId directory = 0; directory < kDirectories; ++directory) {
        names.listed(names.listing_begins(directory, at(static_cast<int>(directory))), {});
    }
    EXPECT_LE(names.directories().size(), 64U);
    EXPECT_TRUE(names.has_not(kDirectories - 1, "new", at(0))) << "the oldest goes first";
    for (int name = 0; name < 5000; ++name) {
        names.taken(kDirectories - 1, std::to_string(name));
    }
    EXPECT_FALSE(names.has_not(kDirectories - 1, "new", at(0)));
}

}  // namespace
}  // namespace ckptfs::fs
