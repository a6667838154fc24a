// SPDX-License-Identifier: Apache-2.0
// What mounts of one bucket tell each other where a disk acknowledges: of files that are not in the bucket yet, and of
// markers that wait for those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "support/manual_clock.h"
#include "unit/writeback/told_to_others_fixture.h"

namespace ckptfs::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(ToldToOthers, OthersKnowOfAFileBeforeItIsAcknowledged) {
    const auto made = mount();
    ASSERT_TRUE(made->put("p/d/a.log", "x"));
    EXPECT_FALSE(is_told());
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    EXPECT_TRUE(is_told());
    EXPECT_FALSE(bucket.exists("p/d/a"));
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
    EXPECT_THAT(files(), ElementsAre("p/d/a", "p/d/a.log"));
}

TEST_F(ToldToOthers, WhereOthersCannotBeToldNothingIsAcknowledged) {
    bucket.inject({Operation::kPut, "", store_error(EACCES, "AccessDenied", 403), 0, 1});
    const auto made = mount();
    const auto put = made->put("p/d/a", kLarge);
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().errno_value, EACCES);
    EXPECT_EQ(made->unsent().status().changes, 0U);
    EXPECT_EQ((*made)->head("p/d/a").error().errno_value, ENOENT);
}

TEST_F(ToldToOthers, OthersKnowOfAFileThatIsBeingWritten) {
    const auto made = started();
    const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
    EXPECT_TRUE(is_told());
    EXPECT_EQ(written, 1);
    const auto part = (*made)->upload_part({upload, 1, Payload::from_string(kLarge), crc32c(as_bytes(kLarge))});
    const std::vector<std::string> told = bucket.keys();
    bucket.hold(Operation::kPut);
    ASSERT_TRUE((*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, nullptr}));
    EXPECT_EQ(written, 0);
    // It began when it was begun to be written.
    EXPECT_EQ(bucket.keys(), told);
    bucket.release(Operation::kPut);
    made->wait_until_sent();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
    const auto another = (*made)->create_upload({"p/d/b", {}, "", "", "", {}}).value();
    EXPECT_TRUE(is_told());
    ASSERT_TRUE((*made)->abort_upload(another));
    EXPECT_EQ(written, 0);
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
}

TEST_F(ToldToOthers, AFileThatWasBeingWrittenAtAKillIsLeftToTheNextMount) {
    auto made = mount();
    static_cast<void>((*made)->create_upload({"p/d/a", {}, "", "", "", {}}));
    kill(std::move(made));
    EXPECT_EQ(written, 1);
    EXPECT_TRUE(is_told());
    made = started();
    made->wait_until_sent();
    EXPECT_TRUE(is_told());
    // Once it has told others.
    made->unsent().withdraw_left();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
}

TEST_F(ToldToOthers, AFileThatWasBeingWrittenBesideAnotherIsLeftToTheNextMountToo) {
    auto made = mount();
    ASSERT_TRUE(made->put("p/d/b", kLarge));
    static_cast<void>((*made)->create_upload({"p/d/a", {}, "", "", "", {}}));
    ASSERT_EQ(announcements().size(), 1U);
    kill(std::move(made));
    made = mount();
    pass_a_moment(*made);
    EXPECT_TRUE(bucket.exists("p/d/b"));
    EXPECT_TRUE(is_told());
    made->unsent().withdraw_left();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
}

TEST_F(ToldToOthers, AfterAKillOthersKnowUntilAllIsSent) {
    auto made = mount();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    kill(std::move(made));
    const std::vector<std::string> before = bucket.keys();
    ASSERT_EQ(before.size(), 1U);
    made = mount();
    bucket.hold(Operation::kPut);
    made->unsent().start();
    made->unsent().withdraw_left();
    // Nothing of it is sent before that.
    ASSERT_TRUE(bucket.wait_until_held(Operation::kPut, 1));
    EXPECT_EQ(bucket.keys(), before);
    bucket.release_one(Operation::kPut);
    // By the same object: others have seen it.
    ASSERT_TRUE(bucket.wait_until_held(Operation::kPut, 1));
    EXPECT_EQ(announcements(), before);
    bucket.release(Operation::kPut);
    made->wait_until_sent();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
    EXPECT_THAT(files(), ElementsAre("p/d/a"));
}

TEST_F(ToldToOthers, WhereOthersCannotBeToldOfWhatAKillHasLeftItIsSaidAndNotWaitedForForEver) {
    auto made = mount();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    kill(std::move(made));
    change_environment = [change = change_environment](WritebackEnvironment& environment) {
        change(environment);
        environment.patience = Milliseconds(1);
    };
    made = mount();
    std::promise<Status> sent;
    std::future<Status> answer = sent.get_future();
    made->unsent().when_sent([&sent](Status status) { sent.set_value(std::move(status)); });
    bucket.inject({Operation::kPut, announcements().front(), store_error(EACCES, "AccessDenied", 403), 0, 1'000'000});
    made->unsent().start();
    ASSERT_EQ(answer.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    const Status waited = answer.get();
    ASSERT_FALSE(waited);
    EXPECT_TRUE(waited.error().retryable) << "nothing was sent yet";
    EXPECT_THAT(waited.error().message, AllOf(StartsWith("p/d/a: "), HasSubstr("other mounts cannot be told")));
    EXPECT_EQ(made->unsent().status().failing_key, "p/d/a");
    EXPECT_THAT(made->unsent().status().failure, HasSubstr("AccessDenied"));
    EXPECT_THAT(files(), IsEmpty());
    bucket.clear_faults();
    EXPECT_TRUE(eventually([this] { return files() == std::vector<std::string>{"p/d/a"}; }));
    EXPECT_EQ(made->unsent().status().failure, "");
}

TEST_F(ToldToOthers, AMarkerWaitsUntilItMayBeMade) {
    std::atomic<bool> may = false;
    may_mark = [&may] { return may ? Status() : refusal(true); };
    const auto made = started();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    ASSERT_TRUE(made->put("p/e/a", kLarge));
    ASSERT_TRUE(eventually([this] { return asked >= 3; }));
    EXPECT_THAT(files(), ElementsAre("p/d/a"));
    EXPECT_EQ(made->unsent().status().failing_key, "p/d/.metadata");
    EXPECT_EQ(made->content("p/d/.metadata"), "x");
    may = true;
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre("p/d/.metadata", "p/d/a", "p/e/a"));
    EXPECT_TRUE(lost().empty());
}

TEST_F(ToldToOthers, AMarkerWaitsForWhatOthersHadAnnouncedBefore) {
    announced = std::vector<std::uint64_t>{7, 9};
    auto made = mount();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    announced = std::vector<std::uint64_t>{7, 9, 11};
    kill(std::move(made));
    made = started();
    made->wait_until_sent();
    EXPECT_THAT(awaited, ElementsAre(7, 9));
}

TEST_F(ToldToOthers, AMarkerIsNotAcknowledgedWhereNobodyKnowsWhatOthersHaveAnnounced) {
    announced = failure(EIO, "the store does not answer");
    const auto made = mount();
    EXPECT_EQ(made->put("p/d/.metadata", "x").error().errno_value, EIO);
    EXPECT_TRUE(made->put("p/d/a", kLarge));
    ASSERT_TRUE((*made)->remove("p/d/.metadata"));
    EXPECT_EQ(made->unsent().status().changes, 2U);
}

// Two mounts that each write a marker and then files must not wait for each other.
TEST_F(ToldToOthers, WhatComesBehindAMarkerIsNotAnnouncedByWhatCameBefore) {
    const auto made = mount();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    const std::vector<std::string> before = announcements();
    ASSERT_EQ(before.size(), 1U);
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    ASSERT_TRUE(made->put("p/d/b", kLarge));
    EXPECT_EQ(announcements().size(), 2U);
    may_mark = [] { return refusal(true); };
    made->unsent().start();
    // Markers of others wait for that of before only.
    EXPECT_TRUE(eventually([&] { return bucket.exists("p/d/a") && !bucket.exists(before.front()); }));
    EXPECT_EQ(announcements().size(), 1U);
    EXPECT_FALSE(bucket.exists("p/d/b"));
}

TEST_F(ToldToOthers, AFileThatWasBegunBeforeAMarkerIsAnnouncedAnewBehindIt) {
    may_mark = [] { return refusal(true); };
    const auto made = started();
    const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
    const auto part = (*made)->upload_part({upload, 1, Payload::from_string(kLarge), crc32c(as_bytes(kLarge))});
    const std::vector<std::string> before = announcements();
    ASSERT_EQ(before.size(), 1U);
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    EXPECT_EQ(announcements(), before);
    ASSERT_TRUE((*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, nullptr}));
    EXPECT_TRUE(eventually([&] { return announcements().size() == 1U && announcements() != before; }));
    EXPECT_EQ(written, 0);
}

TEST_F(ToldToOthers, AFileThatWaitsForRoomBehindAMarkerIsAnnouncedAnew) {
    std::atomic<bool> may = false;
    may_mark = [&may] { return may ? Status() : refusal(true); };
    const auto made = mount(1);
    ASSERT_TRUE(made->put("p/e/a", kLarge));
    auto marker = std::async(std::launch::async, [&made] { return made->put("p/d/.metadata", "x"); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 1; }));
    auto file = std::async(std::launch::async, [&made] { return made->put("p/d/a", kLarge); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 2; }));
    const std::vector<std::string> before = announcements();
    ASSERT_EQ(before.size(), 1U);
    made->unsent().start();
    EXPECT_TRUE(marker.get());
    EXPECT_TRUE(eventually([&] { return announcements().size() == 1U && announcements() != before; }));
    EXPECT_TRUE(eventually([&] { return made->unsent().status().waiting == 1U; }));
    may = true;
    EXPECT_TRUE(file.get());
    made->wait_until_sent();
}

TEST_F(ToldToOthers, AFileWhoseAnnouncementIsLateIsAnnouncedAnewBehindAMarker) {
    bucket.hold_answers(Operation::kPut);
    const auto made = mount(1);
    auto file = std::async(std::launch::async, [&made] { return made->put("p/d/a", kLarge); });
    ASSERT_TRUE(eventually([&] { return announcements().size() == 1U; }));
    const std::vector<std::string> before = announcements();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    bucket.release(Operation::kPut);
    EXPECT_TRUE(eventually([&] { return announcements().size() == 1U && announcements() != before; }));
    EXPECT_EQ(made->unsent().status().waiting, 1U);
    made->unsent().start();
    EXPECT_TRUE(file.get());
    made->wait_until_sent();
}

// Else a marker could come before others know that the file has failed.
TEST_F(ToldToOthers, AFileThatIsNotAcknowledgedIsAnnouncedUntilItIsGivenUp) {
    const auto made = mount();
    const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
    const auto part = (*made)->upload_part({upload, 1, Payload::from_string(kLarge), crc32c(as_bytes(kLarge))});
    EXPECT_FALSE((*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, [] { return false; }}));
    pass_a_moment(*made);
    EXPECT_TRUE(is_told());
    ASSERT_TRUE((*made)->abort_upload(upload));
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
}

TEST_F(ToldToOthers, OfAFileThatIsNotAcknowledgedBeforeOthersKnowOfItNothingIsLeft) {
    const auto made = mount();
    bucket.hold_answers(Operation::kPut);
    const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
    const auto part = (*made)->upload_part({upload, 1, Payload::from_string(kLarge), crc32c(as_bytes(kLarge))});
    std::atomic<bool> was_asked = false;
    auto completed = std::async(std::launch::async, [&] {
        return (*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, [&was_asked] {
                                             was_asked = true;
                                             return false;
                                         }});
    });
    ASSERT_TRUE(bucket.wait_until_held(Operation::kPut, 1));
    bucket.release(Operation::kPut);
    EXPECT_FALSE(completed.get());
    EXPECT_TRUE(was_asked);
    ASSERT_TRUE((*made)->abort_upload(upload));
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
}

// Readers of other mounts see it already.
TEST_F(ToldToOthers, AMarkerThatWasMadeIsNotGivenUpWhereItsAnswerWasLost) {
    std::atomic<bool> may = true;
    may_mark = [&may] { return may.exchange(false) ? Status() : refusal(false); };
    Error lost_answer = store_error(EIO, "", 0);
    lost_answer.retryable = lost_answer.outcome_unknown = true;
    bucket.inject({Operation::kPut, "p/d/.metadata", lost_answer, 0, 1, true});
    const auto made = started();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    made->wait_until_sent();
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(bucket.content("p/d/.metadata"), "x");
    EXPECT_TRUE((*made)->head("p/d/.metadata"));
    EXPECT_TRUE(lost().empty());
}

TEST_F(ToldToOthers, AMarkerThatMayNotBeMadeIsGivenUp) {
    may_mark = [] { return refusal(false); };
    auto made = started();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    ASSERT_TRUE(made->put("p/e/a", kLarge));
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre("p/e/a"));
    EXPECT_EQ((*made)->head("p/d/.metadata").error().errno_value, ENOENT);
    EXPECT_THAT(lost(), ElementsAre(std::pair("p/d/.metadata", EIO)));
    EXPECT_EQ(given_up_markers->left(), std::pair(std::uint64_t{1}, std::string("p/d/.metadata")));
    kill(std::move(made));
    may_mark = [] { return Status(); };
    made = started();
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/d/.metadata"));
    // Until it is written again.
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    EXPECT_EQ(given_up_markers->left().first, 0U);
    EXPECT_TRUE(lost().empty());
}

TEST_F(ToldToOthers, AMarkerThatWasGivenUpGoesWithItsDirectory) {
    may_mark = [] { return refusal(false); };
    const auto made = started();
    ASSERT_TRUE(made->put("p/d/", ""));
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    made->wait_until_sent();
    EXPECT_EQ(given_up_markers->left().first, 1U);
    ASSERT_TRUE((*made)->remove("p/d/"));
    EXPECT_EQ(given_up_markers->left().first, 0U);
}

// It was acknowledged, and the program may not have been told yet.
TEST_F(ToldToOthers, AMarkerThatWasGivenUpIsReportedAfterARestart) {
    // Each batch has a segment of its own, so that those of the markers go.
    change_environment = [others = change_environment](WritebackEnvironment& environment) {
        others(environment);
        environment.segment_size = 1;
    };
    may_mark = [] { return refusal(false); };
    auto made = started();
    ASSERT_TRUE(made->put("p/d/", ""));
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    made->wait_until_sent();
    // Its log removes what it does not need: the note alone is left.
    made->unsent().stop();
    may_mark = [] { return Status(); };
    for (int restart = 0; restart < 2; ++restart) {
        made = this->restart(std::move(made));
        made->wait_until_sent();
        EXPECT_FALSE(bucket.exists("p/d/.metadata"));
        EXPECT_EQ(given_up_markers->left(), std::pair(std::uint64_t{1}, std::string("p/d/.metadata")));
        // No change has the marker's number.
        for (const char* key : {"p/other/a", "p/other/b", "p/other/c"}) {
            ASSERT_TRUE(made->put(key, kLarge));
        }
        made->wait_until_sent();
    }
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    EXPECT_EQ(given_up_markers->left().first, 0U);
    made = this->restart(std::move(made));
    EXPECT_EQ(given_up_markers->left().first, 0U);
    made->wait_until_sent();
    made->unsent().stop();
    EXPECT_TRUE(log_sizes(directory()).empty());
}

TEST(GivenUpMarkersTest, WhatIsOldIsForgottenAsAnyChangeIsAcknowledged) {
    ManualClock time;
    GivenUpMarkers markers(time, std::chrono::minutes(1));
    std::vector<std::uint64_t> forgotten;
    const GivenUpMarkers::Forget forget = [&](std::uint64_t number) { forgotten.push_back(number); };
    EXPECT_TRUE(markers.add("a/.metadata", std::chrono::seconds(59), 7, forget));
    EXPECT_TRUE(markers.add("b/.metadata", Milliseconds(0), 8, forget));
    EXPECT_FALSE(markers.made_good("file"));
    EXPECT_THAT(forgotten, ElementsAre());
    time.move(std::chrono::seconds(1));
    EXPECT_FALSE(markers.made_good("file"));
    EXPECT_THAT(forgotten, ElementsAre(7));
    EXPECT_TRUE(markers.made_good("b/.metadata"));
    EXPECT_THAT(forgotten, ElementsAre(7, 8));
}

TEST_F(ToldToOthers, AMarkerThatWasGivenUpLongAgoIsForgottenByARestart) {
    may_mark = [] { return refusal(false); };
    auto made = started();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    made->wait_until_sent();
    made = restart(std::move(made), Milliseconds(0));
    EXPECT_EQ(given_up_markers->left().first, 0U);
    made->wait_until_sent();
    made->unsent().stop();
    EXPECT_TRUE(log_sizes(directory()).empty());
}

// Killed before it had noted that.
TEST_F(ToldToOthers, AMarkerThatWasWrittenAgainIsNotReportedAfterARestart) {
    {
        const auto opened = ChangeLog::open(directory()).value();
        UnsentChange change;
        change.is_barrier = true;
        const auto append = [&](std::uint64_t number, const char* key, UnsentChange::Kind kind) {
            change.number = number;
            change.object.key = key;
            change.kind = kind;
            opened.log->append(change, [](const Status&) {});
        };
        const auto give_up = [&](std::uint64_t number, const char* key) {
            opened.log->given_up({number, key, clock.wall_now()}, [](const Status&) {});
        };
        append(1, "p/d/.metadata", UnsentChange::Kind::kPut);
        append(2, "p/e/.metadata", UnsentChange::Kind::kPut);
        append(3, "p/f/.metadata", UnsentChange::Kind::kPut);
        append(4, "p/d/.metadata", UnsentChange::Kind::kRemove);
        give_up(1, "p/d/.metadata");
        give_up(2, "p/e/.metadata");
        give_up(3, "p/f/.metadata");
        append(5, "p/e/", UnsentChange::Kind::kRemove);
    }
    const auto made = mount();
    EXPECT_EQ(given_up_markers->left(), std::pair(std::uint64_t{1}, std::string("p/f/.metadata")));
    EXPECT_EQ(made->unsent().status().changes, 2U);
}

// It has replaced another one, in the eyes of who removes it; what another client saves meanwhile is not meant.
TEST_F(ToldToOthers, TheRemovalOfAMarkerThatIsGivenUpRemovesTheOneBefore) {
    may_mark = [] { return refusal(false); };
    for (const bool is_killed : {false, true}) {
        bucket.advance_clock(Milliseconds(-600'000));
        bucket.put_object("p/d/.metadata", "old");
        bucket.put_object("p/e/.metadata", "old");
        bucket.advance_clock(Milliseconds(600'000));
        auto made = mount();
        for (const char* key : {"p/d/.metadata", "p/e/.metadata"}) {
            const auto put = made->put(key, "new");
            ASSERT_TRUE(put);
            ASSERT_TRUE((*made)->remove(key, put->etag));
        }
        bucket.put_object("p/e/.metadata", "of another client");
        if (is_killed) {
            kill(std::move(made));
            made = mount();
        }
        made->unsent().start();
        made->wait_until_sent();
        EXPECT_FALSE(bucket.exists("p/d/.metadata")) << is_killed;
        EXPECT_EQ(bucket.content("p/e/.metadata"), "of another client");
    }
}

TEST_F(ToldToOthers, TheRemovalOfAMarkerIsNotAsked) {
    bucket.put_object("p/d/.metadata", "x");
    may_mark = [] { return refusal(false); };
    const auto made = started();
    ASSERT_TRUE((*made)->remove("p/d/.metadata"));
    made->wait_until_sent();
    EXPECT_EQ(asked, 0);
    EXPECT_FALSE(bucket.exists("p/d/.metadata"));
}

TEST_F(ToldToOthers, WhatMountsTellEachOtherIsNotAcknowledgedByTheDisk) {
    const auto made = mount();
    ASSERT_TRUE(made->put("p/.ckptfs/failed/d/a", "x"));
    EXPECT_TRUE(bucket.exists("p/.ckptfs/failed/d/a"));
    ASSERT_TRUE(made->copy("p/.ckptfs/failed/d/a", "p/.ckptfs/failed/d/b"));
    EXPECT_TRUE(bucket.exists("p/.ckptfs/failed/d/b"));
    ASSERT_TRUE((*made)->remove("p/.ckptfs/failed/d/a"));
    bucket.put_object("p/d/a", "x");
    ASSERT_TRUE((*made)->remove_many({{"p/.ckptfs/failed/d/b", ""}, {"p/d/a", ""}}));
    EXPECT_THAT(bucket.keys(), ElementsAre("p/d/a"));
    EXPECT_EQ(made->unsent().status().changes, 1U);
}

TEST_F(ToldToOthers, TheIdIsThatOfTheDisk) {
    const std::string first = mount()->unsent().id();
    ASSERT_TRUE(mount()->put("p/d/a", kLarge));
    const std::string id = directory() + "/id";
    std::filesystem::copy_file(id, id + ".copy");
    std::filesystem::rename(id + ".copy", id);
    EXPECT_EQ(mount()->unsent().id(), first) << "other mounts know by it what was left";
    auto made = mount();
    made->unsent().start();
    made->wait_until_sent();
    // What the log still has is sent.
    kill(std::move(made));
    EXPECT_NE(mount()->unsent().id(), first);
}

}  // namespace
}  // namespace ckptfs::testing
