// SPDX-License-Identifier: Apache-2.0
#include "writeback/send_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptfs {
namespace {

using Kind = UnsentChange::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kLarge = 1 << 20;

class SendOrderTest : public ::testing::Test {
protected:
    void add(Kind kind, const std::string& key, std::uint64_t size = kLarge, bool is_barrier = false) {
        auto held = std::make_shared<HeldChange>();
        held->change.number = ++last;
        held->change.kind = kind;
        held->change.object.key = key;
        held->change.object.size = size;
        held->change.is_barrier = is_barrier;
        order.add(std::move(held));
    }
    void add_copy(const std::string& source, const std::string& key) {
        auto held = std::make_shared<HeldChange>();
        held->change.number = ++last;
        held->change.kind = Kind::kCopy;
        held->change.source_key = source;
        held->change.object.key = key;
        held->change.object.size = kLarge;
        order.add(std::move(held));
    }
    std::vector<std::uint64_t> begin(std::size_t most = 100) {
        std::vector<std::uint64_t> numbers;
        for (const auto& each : order.begin(most)) {
            numbers.push_back(each->change.number);
        }
        return numbers;
    }

    SendOrder order;
    std::uint64_t last = 0;
};

TEST_F(SendOrderTest, FilesGoSideBySide) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "b");
    add(Kind::kPut, "c");
    EXPECT_THAT(begin(2), ElementsAre(1, 2));
    EXPECT_THAT(begin(2), IsEmpty());
    order.ended(1);
    EXPECT_THAT(begin(2), ElementsAre(3));
}

TEST_F(SendOrderTest, ABarrierIsAlone) {
    add(Kind::kPut, "a");
    add(Kind::kPut, ".metadata", kLarge, true);
    add(Kind::kPut, "b");
    EXPECT_THAT(begin(), ElementsAre(1));
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(2));
    EXPECT_THAT(begin(), IsEmpty());
    order.ended(2);
    EXPECT_THAT(begin(), ElementsAre(3));
}

TEST_F(SendOrderTest, AFileThatMayPointToOthersIsAlone) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "latest", 12);
    add(Kind::kPut, "b");
    EXPECT_THAT(begin(), ElementsAre(1));
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(2));
}

TEST_F(SendOrderTest, SoIsACopyOfOne) {
    add(Kind::kCopy, "a");
    add(Kind::kCopy, "latest", 12);
    EXPECT_THAT(begin(), ElementsAre(1));
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(2));
}

TEST_F(SendOrderTest, KindsDoNotOvertakeEachOther) {
    add(Kind::kRemove, "a");
    add(Kind::kRemove, "b");
    add(Kind::kPut, "c");
    add(Kind::kRemove, "d");
    EXPECT_THAT(begin(), ElementsAre(1, 2));
    order.ended(2);
    EXPECT_THAT(begin(), IsEmpty());
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(3));
}

TEST_F(SendOrderTest, OfAKeyTheFirstGoesFirst) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "a");
    add(Kind::kPut, "b");
    EXPECT_THAT(begin(), ElementsAre(1, 3));
    order.ended(3);
    EXPECT_THAT(begin(), IsEmpty());
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(2));
}

TEST_F(SendOrderTest, ACopyWaitsForTheOneThatMakesItsSource) {
    add_copy("a", "b");
    add_copy("b", "c");
    add_copy("x", "y");
    add_copy("z", "a");
    EXPECT_THAT(begin(), ElementsAre(1, 3));
}

TEST_F(SendOrderTest, AFileWaitsForWhatItsPartsAreCopiedFrom) {
    add(Kind::kPut, "a");
    auto held = std::make_shared<HeldChange>();
    held->change.number = ++last;
    held->change.object.key = "b";
    held->change.object.size = kLarge;
    held->change.body = {BodyPiece::of_object("a", "\"a\"", 0, kLarge, kLarge)};
    order.add(std::move(held));
    EXPECT_THAT(begin(), ElementsAre(1));
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(2));
}

TEST_F(SendOrderTest, WhatFailedKeepsItsPlaceUntilItIsTriedAgain) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "b");
    add(Kind::kPut, ".metadata", kLarge, true);
    EXPECT_THAT(begin(), ElementsAre(1, 2));
    order.failed(1);
    order.ended(2);
    EXPECT_THAT(begin(), IsEmpty());
    order.retry_all();
    EXPECT_THAT(begin(), ElementsAre(1));
    order.ended(1);
    EXPECT_THAT(begin(), ElementsAre(3));
}

TEST_F(SendOrderTest, TellsTheLastOfAKey) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "a");
    EXPECT_EQ(order.last_of("a", 2)->change.number, 1U);
    EXPECT_EQ(order.last_of("a", 1)->change.number, 2U);
    EXPECT_EQ(order.last_of("b", 1), nullptr);
}

}  // namespace
}  // namespace ckptfs
