// SPDX-License-Identifier: Apache-2.0
#include "fs/names/hidden_names.h"

#include <gtest/gtest.h>

#include <string>

namespace ckptfs::fs {
namespace {

SteadyTime at(int second) {
    return SteadyTime(std::chrono::hours(1) + std::chrono::seconds(second));
}

TEST(HiddenNames, CountForAWhile) {
    HiddenNames names;
    names.found("p/a", true, at(0), at(5));
    EXPECT_TRUE(names.has("p/a", at(14)));
    EXPECT_FALSE(names.has("p/a", at(15)));
    EXPECT_FALSE(names.has("p/b", at(5)));
}

TEST(HiddenNames, TheLatestQuestionCounts) {
    HiddenNames names;
    names.found("p/a", false, at(1), at(2));
    names.found("p/a", true, at(0), at(3));
    EXPECT_FALSE(names.has("p/a", at(3)));
    names.found("p/a", true, at(4), at(5));
    names.found("p/a", false, at(3), at(6));
    EXPECT_TRUE(names.has("p/a", at(6)));
    names.found("p/a", false, at(7), at(8));
    EXPECT_FALSE(names.has("p/a", at(8)));
}

TEST(HiddenNames, ThoseThatAreNotHiddenMakeRoom) {
    HiddenNames names;
    for (int i = 0; i < 5000; ++i) {
        names.found("p/" + std::to_string(i), false, at(0), at(0));
    }
    names.found("p/a", true, at(0), at(0));
    EXPECT_TRUE(names.has("p/a", at(0)));
}

}  // namespace
}  // namespace ckptfs::fs
