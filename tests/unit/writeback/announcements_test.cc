// SPDX-License-Identifier: Apache-2.0
#include "writeback/announcements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/bucket_layout.h"
#include "support/fake_store.h"
#include "support/hand_timer.h"
#include "support/manual_clock.h"

namespace ckptfs::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr Milliseconds kLinger{300};
constexpr Milliseconds kTryAgainAfter{5'000};

class AnnouncementsTest : public ::testing::Test {
protected:
    std::unique_ptr<Announcements> make(const std::string& id = "disk") {
        return std::make_unique<Announcements>(Announcements::Environment{bucket, timer, clock, "p/", id, "node-1"});
    }
    // What it calls back with.
    using Told = std::shared_ptr<std::optional<Result<std::string>>>;
    static Told begin(Announcements& announcements, const std::string& key) {
        auto told = std::make_shared<std::optional<Result<std::string>>>();
        announcements.begin(key, [told](Result<std::string> answer) { *told = std::move(answer); });
        return told;
    }

    ManualClock clock;
    FakeStore bucket;
    HandTimer timer;
};

TEST_F(AnnouncementsTest, OneObjectTellsOfAllFilesOfADirectory) {
    const auto made = make();
    const auto first = begin(*made, "p/run/step-1/0.pt");
    const auto second = begin(*made, "p/run/step-1/1.pt");
    ASSERT_TRUE(first->has_value() && first->value());
    ASSERT_TRUE(second->has_value() && second->value());
    ASSERT_THAT(bucket.keys(), ElementsAre(StartsWith("p/.ckptfs/unsent/run/step-1/disk-")));
    EXPECT_EQ(bucket.content(bucket.keys().front()), "node-1");
    made->end(first->value().value());
    timer.run(kLinger);
    EXPECT_EQ(bucket.keys().size(), 1U);
    made->end(second->value().value());
    EXPECT_EQ(bucket.keys().size(), 1U);
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), IsEmpty());
}

TEST_F(AnnouncementsTest, TheNextFileInTheSameMomentNeedsNoOther) {
    const auto made = make();
    made->end(begin(*made, "p/d/0")->value().value());
    begin(*made, "p/d/1");
    timer.run(kLinger);
    EXPECT_EQ(bucket.keys().size(), 1U);
    EXPECT_EQ(bucket.calls(Operation::kPut), 1);
}

// Else a marker would wait for as long as others come.
TEST_F(AnnouncementsTest, LaterFilesHaveAnotherObject) {
    const auto made = make();
    const auto first = begin(*made, "p/d/0");
    clock.move(Announcements::kGeneration);
    // Until the other one is there.
    bucket.hold(Operation::kPut);
    const auto second = begin(*made, "p/d/1");
    EXPECT_EQ(second->value().value(), first->value().value());
    bucket.release(Operation::kPut);
    const auto third = begin(*made, "p/d/2");
    EXPECT_NE(third->value().value(), first->value().value());
    EXPECT_EQ(bucket.keys().size(), 2U);
    made->end(first->value().value());
    made->end(second->value().value());
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), ElementsAre(third->value().value()));
}

TEST_F(AnnouncementsTest, InAnOutageTheLastOneStandsForWhatComes) {
    const auto made = make();
    const auto first = begin(*made, "p/d/0");
    bucket.inject({Operation::kPut, "", store_error(EIO, "ServiceUnavailable", 503), 0, 1'000});
    for (int file = 1; file < 4; ++file) {
        clock.move(Announcements::kGeneration);
        EXPECT_EQ(begin(*made, "p/d/" + std::to_string(file))->value().value(), first->value().value());
    }
    EXPECT_FALSE(begin(*made, "p/e/0")->value());
    EXPECT_THAT(bucket.keys(), ElementsAre(first->value().value()));
}

// Else two markers could wait for each other (announcements.h).
TEST_F(AnnouncementsTest, WhatComesAfterAMarkerHasAnotherObject) {
    const auto made = make();
    const std::string before = begin(*made, "p/d/0")->value().value();
    EXPECT_TRUE(made->is_of_this_run(before));
    made->begin_next_run();
    EXPECT_FALSE(made->is_of_this_run(before));
    bucket.hold(Operation::kPut);
    const auto after = begin(*made, "p/d/1");
    EXPECT_FALSE(after->has_value()) << "that of before stands for it";
    bucket.release(Operation::kPut);
    EXPECT_NE(after->value().value(), before);
    EXPECT_TRUE(made->is_of_this_run(after->value().value()));
    EXPECT_EQ(begin(*made, "p/d/2")->value().value(), after->value().value());
    made->end(before);
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), ElementsAre(after->value().value()));
}

TEST_F(AnnouncementsTest, OneThatWasOnItsWayAtAMarkerIsOfBefore) {
    const auto made = make();
    static_cast<void>(begin(*made, "p/d/0"));
    clock.move(Announcements::kGeneration);
    bucket.hold(Operation::kPut);
    static_cast<void>(begin(*made, "p/d/1"));
    made->begin_next_run();
    const auto after = begin(*made, "p/d/2");
    bucket.release(Operation::kPut);
    EXPECT_TRUE(made->is_of_this_run(after->value().value()));
    EXPECT_EQ(begin(*made, "p/d/3")->value().value(), after->value().value());
    timer.run(kLinger);
    EXPECT_EQ(bucket.keys().size(), 2U);
}

TEST_F(AnnouncementsTest, NothingIsAcknowledgedBeforeItIsThere) {
    bucket.hold(Operation::kPut);
    const auto made = make();
    const auto first = begin(*made, "p/d/0");
    const auto second = begin(*made, "p/d/1");
    const auto other = begin(*made, "p/0");
    EXPECT_FALSE(first->has_value() || second->has_value() || other->has_value());
    bucket.release(Operation::kPut);
    EXPECT_TRUE(first->value() && second->value() && other->value());
    EXPECT_EQ(bucket.calls(Operation::kPut), 2);
}

TEST_F(AnnouncementsTest, AFailureIsThatOfAllWhoWait) {
    Error lost = store_error(EIO, "", 0);
    lost.outcome_unknown = true;
    bucket.inject({Operation::kPut, "", lost, 0, 1, true});
    const auto made = make();
    const auto first = begin(*made, "p/d/0");
    ASSERT_TRUE(first->has_value());
    EXPECT_FALSE(first->value());
    // It may have been made.
    EXPECT_THAT(bucket.keys(), IsEmpty());
    EXPECT_TRUE(begin(*made, "p/d/0")->value());
    EXPECT_EQ(bucket.keys().size(), 1U);
}

TEST_F(AnnouncementsTest, ItIsWrittenAnewWhileThereAreFiles) {
    const auto made = make();
    const auto told = begin(*made, "p/d/0");
    timer.run(kUnsentToldEvery);
    timer.run(kUnsentToldEvery);
    EXPECT_EQ(bucket.calls(Operation::kPut), 3);
    EXPECT_EQ(bucket.keys().size(), 1U);
    made->end(told->value().value());
    timer.run(kLinger);
    timer.run(kUnsentToldEvery);
    EXPECT_EQ(bucket.calls(Operation::kPut), 3);
    EXPECT_THAT(bucket.keys(), IsEmpty());
}

// Else the removal could be made before what was asked for earlier.
TEST_F(AnnouncementsTest, ItIsNotRemovedWhileItIsWrittenAnew) {
    const auto made = make();
    const auto told = begin(*made, "p/d/0");
    bucket.hold(Operation::kPut);
    timer.run(kUnsentToldEvery);
    made->end(told->value().value());
    timer.run(kLinger);
    EXPECT_EQ(bucket.calls(Operation::kRemove), 0);
    bucket.release(Operation::kPut);
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), IsEmpty());
}

TEST_F(AnnouncementsTest, ARemovalIsTriedUntilItIsMadeAndOnceMore) {
    const auto made = make();
    begin(*made, "p/d/0");
    const std::string object = bucket.keys().front();
    bucket.inject({Operation::kRemove, object, store_error(EIO, "SlowDown", 503), 0, 2});
    made->end(object);
    timer.run(kLinger);
    timer.run(kTryAgainAfter);
    EXPECT_EQ(bucket.keys().size(), 1U);
    timer.run(kTryAgainAfter);
    EXPECT_THAT(bucket.keys(), IsEmpty());
    // Of an attempt that the network delivers late.
    bucket.put_object(object, "node-1");
    timer.run(kUnsentToldEvery);
    EXPECT_THAT(bucket.keys(), IsEmpty());
}

TEST_F(AnnouncementsTest, AnEndWithdrawsWhatHasNoFilesAndLeavesTheRest) {
    auto made = make();
    made->end(begin(*made, "p/d/0")->value().value());
    begin(*made, "p/e/0");
    bucket.hold(Operation::kRemove);
    bool is_done = false;
    made->finish([&is_done] { is_done = true; });
    EXPECT_FALSE(is_done);
    bucket.release(Operation::kRemove);
    EXPECT_TRUE(is_done);
    made.reset();
    EXPECT_THAT(bucket.keys(), ElementsAre(StartsWith("p/.ckptfs/unsent/e/disk-")));
}

// Markers of other disks wait for these.
TEST_F(AnnouncementsTest, ThoseOfAnEarlierMountKeepTheirNames) {
    bucket.put_object("p/.ckptfs/unsent/d/disk-1", "node-1");
    bucket.put_object("p/.ckptfs/unsent/e/disk-3", "node-1");
    bucket.put_object("p/.ckptfs/unsent/e/other-1", "node-2");
    const auto made = make();
    bool has_begun = false;
    Error lost = store_error(EIO, "", 0);
    lost.outcome_unknown = true;
    bucket.inject({Operation::kPut, "p/.ckptfs/unsent/d/disk-2", lost, 0, 1});
    made->take_over({"p/.ckptfs/unsent/d/disk-1", "p/.ckptfs/unsent/d/disk-2", "p/.ckptfs/unsent/d/disk-1"},
                    [&has_begun] { has_begun = true; });
    EXPECT_FALSE(has_begun);
    timer.run(kTryAgainAfter);
    EXPECT_TRUE(has_begun);
    EXPECT_EQ(bucket.calls(Operation::kRemove), 0);
    EXPECT_EQ(bucket.keys().size(), 4U);
    made->remove_left();
    EXPECT_THAT(bucket.keys(),
                ElementsAre("p/.ckptfs/unsent/d/disk-1", "p/.ckptfs/unsent/d/disk-2", "p/.ckptfs/unsent/e/other-1"));
    const std::string after = begin(*made, "p/d/0")->value().value();
    EXPECT_THAT(after, StartsWith("p/.ckptfs/unsent/d/disk-1700"));
    made->end(after);
    made->end("p/.ckptfs/unsent/d/disk-1");
    made->end("p/.ckptfs/unsent/d/disk-2");
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), ElementsAre("p/.ckptfs/unsent/d/disk-1", "p/.ckptfs/unsent/e/other-1"));
    made->end("p/.ckptfs/unsent/d/disk-1");
    timer.run(kLinger);
    EXPECT_THAT(bucket.keys(), ElementsAre("p/.ckptfs/unsent/e/other-1"));
}

TEST_F(AnnouncementsTest, WhatAnEarlierMountHasLeftStaysUntilTheRestIsThere) {
    bucket.put_object("p/.ckptfs/unsent/d/disk-1", "node-1");
    const auto made = make();
    bucket.hold(Operation::kPut);
    made->take_over({"p/.ckptfs/unsent/d/disk-2"}, [] {});
    made->remove_left();
    EXPECT_TRUE(bucket.exists("p/.ckptfs/unsent/d/disk-1"));
    bucket.release(Operation::kPut);
    EXPECT_THAT(bucket.keys(), ElementsAre("p/.ckptfs/unsent/d/disk-2"));
}

// Its mount was killed, and the next one has listed what it had left already.
TEST_F(AnnouncementsTest, OneThatArrivesLateIsRemoved) {
    const auto made = make();
    made->take_over({}, [] {});
    made->remove_left();
    const std::string late = "p/.ckptfs/unsent/d/disk-1700000000-late";
    bucket.put_object(late, "node-1");
    bucket.put_object("p/.ckptfs/unsent/d/other-1700000000-late", "node-2");
    const std::string own = begin(*made, "p/e/0")->value().value();
    timer.run(kUnsentToldEvery);
    EXPECT_THAT(bucket.keys(), UnorderedElementsAre("p/.ckptfs/unsent/d/other-1700000000-late", own));
    const int lists = bucket.calls(Operation::kList);
    timer.run(kUnsentToldEvery);
    EXPECT_EQ(bucket.calls(Operation::kList), lists);
}

TEST_F(AnnouncementsTest, WithNothingLeftItBeginsAtOnce) {
    const auto made = make();
    bool has_begun = false;
    made->take_over({}, [&has_begun] { has_begun = true; });
    EXPECT_TRUE(has_begun);
    EXPECT_EQ(bucket.calls(Operation::kPut), 0);
}

TEST_F(AnnouncementsTest, NothingBeginsOnceItHasStopped) {
    const auto made = make();
    made->stop();
    EXPECT_EQ(begin(*made, "p/d/0")->value().error().errno_value, ECANCELED);
    bool is_done = false;
    made->finish([&is_done] { is_done = true; });
    EXPECT_TRUE(is_done);
}

}  // namespace
}  // namespace ckptfs::testing
