// SPDX-License-Identifier: Apache-2.0
#include "fs/state/key_order.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace ckptfs::fs {
namespace {

class KeyOrderTest : public ::testing::Test {
protected:
    KeyOrder::Place enter(const std::string& name, std::vector<std::string> keys) {
        const KeyOrder::Place place = order.enter(std::move(keys));
        order.when_first(place, [this, name] { started += name; });
        return place;
    }

    KeyOrder order;
    std::string started;
};

TEST_F(KeyOrderTest, OneKeyIsChangedByOneAtATimeInTheOrderOfArrival) {
    const auto a = enter("a", {"k"});
    const auto b = enter("b", {"k"});
    const auto c = enter("c", {"k"});
    EXPECT_EQ(started, "a");
    EXPECT_FALSE(order.is_first(b));
    order.leave(a);
    EXPECT_EQ(started, "ab");
    order.leave(b);
    EXPECT_EQ(started, "abc");
    order.leave(c);
}

TEST_F(KeyOrderTest, OtherKeysDoNotWait) {
    enter("a", {"dir/k"});
    enter("b", {"dir/k2"});
    enter("c", {"dir/k.tmp"});
    enter("d", {"di"});
    EXPECT_EQ(started, "abcd");
}

TEST_F(KeyOrderTest, ADirectoryAndTheFilesInItWaitForEachOther) {
    const auto file = enter("a", {"dir/sub/k"});
    const auto directory = enter("b", {"dir", "other"});
    const auto below = enter("c", {"other/k"});
    EXPECT_EQ(started, "a");
    order.leave(file);
    EXPECT_EQ(started, "ab");
    order.leave(directory);
    EXPECT_EQ(started, "abc");
    order.leave(below);
}

TEST_F(KeyOrderTest, APlaceTakesMoreKeysWhereNobodyElseHasToDoWithThem) {
    const auto batch = order.enter_if_alone("dir/a").value();
    EXPECT_TRUE(order.is_first(batch));
    EXPECT_TRUE(order.add_if_alone(batch, "dir/b"));
    const auto file = enter("f", {"dir/c"});
    EXPECT_FALSE(order.add_if_alone(batch, "dir/c"));
    EXPECT_FALSE(order.enter_if_alone("dir/c"));
    const auto below = enter("g", {"dir/d/e"});
    EXPECT_FALSE(order.add_if_alone(batch, "dir/d"));
    const auto again = enter("a", {"dir/a"});
    const auto directory = enter("d", {"dir"});
    EXPECT_FALSE(order.add_if_alone(batch, "dir/x")) << "the directory's own change is before it";
    EXPECT_EQ(started, "fg");
    order.leave(file);
    order.leave(below);
    order.leave(batch);
    EXPECT_EQ(started, "fga");
    order.leave(again);
    EXPECT_EQ(started, "fgad");
    order.leave(directory);
}

TEST_F(KeyOrderTest, NamesThatOnlyBeginAlikeAreOthers) {
    const auto batch = order.enter({"dir/a", "dir/a.b", "dir/a!"});
    enter("a", {"dir/a0"});
    enter("b", {"dir/a."});
    enter("c", {"di", "dir/a!0"});
    EXPECT_EQ(started, "abc");
    enter("d", {"dir/a/x"});
    enter("e", {"dir/a!/x"});
    EXPECT_EQ(started, "abc");
    order.leave(batch);
    EXPECT_EQ(started, "abcde");
}

TEST_F(KeyOrderTest, WhoWantsTwoKeysWaitsForBothAndHoldsNeitherMeanwhile) {
    const auto a = enter("a", {"k"});
    const auto b = enter("b", {"l"});
    const auto swap = enter("c", {"k", "l"});
    const auto back = enter("d", {"l", "k"});
    order.leave(b);
    EXPECT_EQ(started, "ab");
    order.leave(a);
    EXPECT_EQ(started, "abc");
    order.leave(swap);
    EXPECT_EQ(started, "abcd");
    order.leave(back);
}

TEST_F(KeyOrderTest, WhoLeavesBeforeItsTurnHoldsNobodyUp) {
    const auto a = enter("a", {"k"});
    const auto b = order.enter({"k"});
    enter("c", {"k"});
    order.leave(b);
    EXPECT_EQ(started, "a");
    order.leave(a);
    EXPECT_EQ(started, "ac");
}

TEST_F(KeyOrderTest, ALongLineOfThoseThatEndAtOnceTakesNoStack) {
    const auto first = order.enter({"k"});
    std::vector<const void*> stack;
    for (int i = 0; i < 100; ++i) {
        const auto place = order.enter({"k"});
        order.when_first(place, [this, place, &stack] {
            stack.push_back(__builtin_frame_address(0));
            order.leave(place);
        });
    }
    order.leave(first);
    EXPECT_EQ(stack.size(), 100U);
    EXPECT_EQ(std::set(stack.begin(), stack.end()).size(), 1U);
}

}  // namespace
}  // namespace ckptfs::fs
