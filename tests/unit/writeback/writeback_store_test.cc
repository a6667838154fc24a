// SPDX-License-Identifier: Apache-2.0
#include "writeback/writeback_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"

namespace ckptfs::testing {
namespace {

using ::testing::ElementsAre;

const std::string kLarge(3'000'000, 'x');

TEST_F(WritebackTest, WhatIsPutIsThereBeforeItIsSent) {
    const auto made = mount();
    const auto put = made->put("a", kLarge, {{"name", "value"}});
    ASSERT_TRUE(put);
    EXPECT_FALSE(bucket.exists("a"));
    const auto head = (*made)->head("a");
    ASSERT_TRUE(head);
    EXPECT_EQ(head->size, kLarge.size());
    EXPECT_EQ(head->etag, put->etag);
    EXPECT_EQ(head->metadata.at("name"), "value");
    EXPECT_EQ(made->content("a"), kLarge);
    EXPECT_EQ(made->content("a", ByteRange{1'048'570, 20}), kLarge.substr(1'048'570, 20));
    EXPECT_EQ(made->content("a", ByteRange{0, 7, true}), kLarge.substr(kLarge.size() - 7));
    EXPECT_EQ(made->content("a", ByteRange{kLarge.size(), 1}).error().http_status, 416);
    EXPECT_EQ(made->content("a", std::nullopt, "\"another\"").error().errno_value, ESTALE);
    EXPECT_EQ(made->unsent().status().changes, 1U);
    EXPECT_EQ(made->unsent().status().bytes, kLarge.size());
}

TEST_F(WritebackTest, WhatIsSentKeepsItsETagHere) {
    const auto made = started();
    const auto put = made->put("a", kLarge);
    made->wait_until_sent();
    ASSERT_EQ(bucket.content("a"), kLarge);
    EXPECT_NE(bucket.info("a").etag, put->etag);
    EXPECT_EQ((*made)->head("a")->etag, put->etag);
    EXPECT_EQ(made->content("a", std::nullopt, put->etag), kLarge);
    EXPECT_EQ((*made)->list({})->objects.front().etag, put->etag);
    EXPECT_TRUE((*made)->remove("a", put->etag));
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("a"));
}

TEST_F(WritebackTest, AKillLosesNothingThatWasAcknowledged) {
    auto made = mount();
    ASSERT_TRUE(made->put("large", kLarge, {{kWriteIdMetadata, "id"}}));
    ASSERT_TRUE(made->put("small", "text"));
    ASSERT_TRUE(made->put("empty", ""));
    ASSERT_TRUE(made->copy("large", "copy"));
    bucket.put_object("old", "of before");
    ASSERT_TRUE((*made)->remove("old"));
    kill(std::move(made));
    made = mount();
    // Before anything is sent.
    EXPECT_EQ(made->content("large"), kLarge);
    EXPECT_EQ(made->content("copy"), kLarge);
    EXPECT_EQ(made->content("small"), "text");
    EXPECT_EQ(made->content("empty"), "");
    EXPECT_EQ((*made)->head("old").error().errno_value, ENOENT);
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_THAT(bucket.keys(), ElementsAre("copy", "empty", "large", "small"));
    EXPECT_EQ(bucket.content("copy"), kLarge);
    EXPECT_EQ(bucket.content("small"), "text");
    EXPECT_EQ(bucket.info("large").metadata.at(kWriteIdMetadata), "id");
}

// What was begun after it was acknowledged is not what is sent later.
TEST_F(WritebackTest, ItIsKnownWhenWhatIsSentWasAcknowledged) {
    bucket.make_etags_of_content();
    bucket.put_object("source", "text");
    std::mutex mutex;
    std::map<std::string, std::string> in_bucket;
    change_environment = [&](WritebackEnvironment& environment) {
        environment.in_bucket = [&](const ObjectInfo& sent, const std::string& etag, WallTime /*when*/) {
            const std::lock_guard lock(mutex);
            in_bucket[sent.key] = etag;
        };
    };
    const auto etag_in_bucket = [&](const std::string& key) {
        const std::lock_guard lock(mutex);
        return in_bucket[key];
    };
    auto made = mount();
    bucket.advance_clock(Milliseconds(2000));
    ASSERT_TRUE(made->put("small", "text"));
    ASSERT_TRUE(made->copy("source", "copy"));
    std::map<std::string, std::optional<WallTime>> acknowledged;
    for (const std::string key : {"small", "copy"}) {
        acknowledged[key] = made->unsent().acknowledged_at((*made)->head(key).value());
        ASSERT_TRUE(acknowledged[key]);
    }
    made->unsent().start();
    made->wait_until_sent();
    const auto known = [&](const std::string& key) {
        return made->unsent().acknowledged_at((*made)->head(key).value());
    };
    for (const auto& [key, time] : acknowledged) {
        EXPECT_EQ(known(key), time);
        EXPECT_EQ((*made)->head(key)->last_modified, bucket.info(key).last_modified) << "as the store tells it";
        EXPECT_TRUE(eventually([&, name = key] { return etag_in_bucket(name) == bucket.info(name).etag; }));
    }
    EXPECT_EQ(bucket.info("copy").etag, bucket.info("source").etag) << "as stores do";
    // By the log.
    kill(std::move(made));
    made = mount();
    for (const auto& [key, time] : acknowledged) {
        EXPECT_EQ(known(key), time);
    }
    for (const auto& [key, time] : acknowledged) {
        const std::lock_guard lock(mutex);
        in_bucket[key].clear();
    }
    made->unsent().start();
    EXPECT_EQ(etag_in_bucket("small"), bucket.info("small").etag);
    EXPECT_EQ(etag_in_bucket("copy"), bucket.info("copy").etag);
}

TEST_F(WritebackTest, AnEndLeavesWhatIsUnsentAndNothingElse) {
    auto made = mount();
    ASSERT_TRUE(made->put("a", kLarge));
    ASSERT_TRUE(made->put("b", kLarge));
    // Never completed.
    const auto upload = (*made)->create_upload({"c", {}, "", "", "", {}});
    ASSERT_TRUE((*made)->upload_part({*upload, 1, Payload::from_string(kLarge), crc32c(as_bytes(kLarge))}));
    made.reset();
    made = started();
    made->wait_until_sent();
    EXPECT_THAT(bucket.keys(), ElementsAre("a", "b"));
    made.reset();
    EXPECT_TRUE(std::filesystem::is_empty(directory()));
}

TEST_F(WritebackTest, AMarkerFollowsAllThatCameBeforeIt) {
    bucket.hold(Operation::kPut);
    const auto made = started();
    ASSERT_TRUE(made->put("ckpt/0.distcp", kLarge));
    ASSERT_TRUE(made->put("ckpt/1.distcp", kLarge));
    ASSERT_TRUE(made->put("ckpt/.metadata", kLarge));
    ASSERT_TRUE(made->put("ckpt2/0.distcp", kLarge));
    ASSERT_TRUE(bucket.wait_until_held(Operation::kPut, 2));
    EXPECT_EQ(bucket.calls(Operation::kPut), 2);
    bucket.release_one(Operation::kPut);
    bucket.release_one(Operation::kPut);
    ASSERT_TRUE(bucket.wait_until_held(Operation::kPut, 1));
    EXPECT_EQ(bucket.calls(Operation::kPut), 3);
    EXPECT_THAT(bucket.keys(), ElementsAre("ckpt/0.distcp", "ckpt/1.distcp"));
    bucket.release(Operation::kPut);
    made->wait_until_sent();
    EXPECT_EQ(bucket.keys().size(), 4U);
}

TEST_F(WritebackTest, WhatFailsIsTriedAgainAndHoldsBackWhatComesAfterIt) {
    bucket.inject({Operation::kPut, "a", store_error(EACCES, "AccessDenied", 403), 0, 3});
    const auto made = started();
    ASSERT_TRUE(made->put("a", kLarge));
    ASSERT_TRUE(made->put(".metadata", "x"));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("a"), kLarge);
    EXPECT_EQ(bucket.calls(Operation::kPut), 5);
    EXPECT_EQ(made->unsent().status().failing_key, "");
}

TEST_F(WritebackTest, StatusTellsWhatFails) {
    bucket.inject({Operation::kPut, "a", store_error(EACCES, "AccessDenied", 403), 0, 1'000'000});
    const auto made = started();
    ASSERT_TRUE(made->put("a", kLarge));
    while (made->unsent().status().failing_key.empty()) {
        std::this_thread::yield();
    }
    EXPECT_EQ(made->unsent().status().failing_key, "a");
    EXPECT_NE(made->unsent().status().failure.find("AccessDenied"), std::string::npos);
    EXPECT_EQ(made->content("a"), kLarge);
}

TEST_F(WritebackTest, AnUploadIsSentInItsParts) {
    const auto made = mount();
    CreateUploadRequest create{"a", {{kWriteIdMetadata, "id"}}, "type", "", "", {}};
    const auto upload = (*made)->create_upload(create);
    std::vector<UploadedPart> parts(3);
    for (const int number : {2, 3, 1}) {
        const std::string part(1'500'000, static_cast<char>('0' + number));
        parts[static_cast<std::size_t>(number) - 1] =
            (*made)->upload_part({*upload, number, Payload::from_string(part), crc32c(as_bytes(part))}).value();
    }
    EXPECT_EQ((*made)->head("a").error().errno_value, ENOENT);
    CompleteRequest complete{*upload, parts, "id", 4'500'000, false, nullptr};
    ASSERT_TRUE((*made)->complete_upload(complete));
    const std::string content = std::string(1'500'000, '1') + std::string(1'500'000, '2') + std::string(1'500'000, '3');
    EXPECT_EQ(made->content("a"), content);
    EXPECT_EQ(made->content("a", ByteRange{1'499'999, 2}), "12");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("a"), content);
    EXPECT_EQ(bucket.calls(Operation::kUploadPart), 3);
    EXPECT_EQ(bucket.info("a").metadata.at(kWriteIdMetadata), "id");
}

TEST_F(WritebackTest, WhatIsAppendedToIsCopiedWithinTheStore) {
    auto made = mount();
    const auto append = [&made](const std::string& more) {
        const std::string before = made->content("log").value_or("");
        const auto upload = (*made)->create_upload({"log", {{kWriteIdMetadata, more}}, "", "", "", {}});
        const auto etag = (*made)->head("log")->etag;
        std::vector<UploadedPart> parts = {
            (*made)->upload_part_copy({*upload, 1, "log", etag, ByteRange{0, before.size()}}).value(),
            (*made)->upload_part({*upload, 2, Payload::from_string(more), crc32c(as_bytes(more))}).value()};
        ASSERT_TRUE((*made)->complete_upload({*upload, parts, more, 0, false, nullptr}));
        ASSERT_EQ(made->content("log"), before + more);
    };
    ASSERT_TRUE(made->put("log", kLarge));
    append("one");
    append("two");
    EXPECT_EQ(made->content("log", ByteRange{kLarge.size() - 2, 6}), "xxonet");
    kill(std::move(made));
    made = mount();
    EXPECT_EQ(made->content("log"), kLarge + "onetwo");
    append("three");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("log"), kLarge + "onetwothree");
    EXPECT_EQ(bucket.calls(Operation::kUploadPartCopy), 3);
    append("four");
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("log"), kLarge + "onetwothreefour");
}

TEST_F(WritebackTest, APartThatChangedInMemoryIsRefused) {
    const auto made = mount();
    const auto upload = (*made)->create_upload({"a", {}, "", "", "", {}});
    const auto part = (*made)->upload_part({*upload, 1, Payload::from_string("bytes"), 1});
    ASSERT_FALSE(part);
    EXPECT_TRUE(part.error().damaged);
}

TEST_F(WritebackTest, ADiskThatReturnsOtherBytesMakesNoObject) {
    auto made = mount();
    ASSERT_TRUE(made->put("a", kLarge));
    for (const auto& each : std::filesystem::directory_iterator(directory())) {
        if (each.path().extension() == ".body") {
            std::fstream file(each.path(), std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(2'000'000);
            file.put('y');
        }
    }
    EXPECT_TRUE(made->content("a").error().damaged);
    made->unsent().start();
    while (made->unsent().status().failing_key.empty()) {
        std::this_thread::yield();
    }
    EXPECT_NE(made->unsent().status().failure.find("the disk is failing"), std::string::npos);
    EXPECT_FALSE(bucket.exists("a"));
}

TEST_F(WritebackTest, ConditionsAreAnsweredByWhatIsKnown) {
    bucket.put_object("there", "1");
    const auto made = mount();
    PutRequest exclusive;
    exclusive.if_none_match = true;
    exclusive.body = Payload::from_string("2");
    exclusive.key = "there";
    EXPECT_EQ((*made)->put(exclusive).error().errno_value, EEXIST);
    exclusive.key = "new";
    ASSERT_TRUE((*made)->put(exclusive));
    EXPECT_EQ((*made)->put(exclusive).error().errno_value, EEXIST);
    PutRequest pinned;
    pinned.key = "there";
    pinned.body = Payload::from_string("3");
    pinned.if_match = "\"another\"";
    EXPECT_EQ((*made)->put(pinned).error().errno_value, ESTALE);
    pinned.if_match = bucket.info("there").etag;
    ASSERT_TRUE((*made)->put(pinned));
    pinned.if_match = (*made)->head("there")->etag;
    ASSERT_TRUE((*made)->put(pinned));
    EXPECT_EQ((*made)->remove("there", "\"another\"").error().errno_value, ESTALE);
    ASSERT_TRUE((*made)->remove("there", (*made)->head("there")->etag));
    ASSERT_TRUE((*made)->remove("there"));
    exclusive.key = "there";
    ASSERT_TRUE((*made)->put(exclusive));
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("there"), "2");
    EXPECT_EQ(bucket.content("new"), "2");
}

TEST_F(WritebackTest, OfTwoThatMakeANameOnceTheFirstHasIt) {
    const auto made = mount();
    PutRequest request;
    request.key = "d/";
    request.body = Payload::from_string("here");
    request.if_none_match = true;
    ASSERT_TRUE((*made)->put(request));
    ASSERT_TRUE(made->put("d/file", kLarge));
    bucket.put_object("d/", "there");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("d/"), "there");
    EXPECT_EQ(bucket.content("d/file"), kLarge);
    EXPECT_EQ(made->content("d/"), "there");
}

TEST_F(WritebackTest, OfTwoAtOnceOnlyOneMakesAName) {
    const auto made = mount();
    for (int round = 0; round < 50; ++round) {
        const auto put = [&made, round](const std::string& content) {
            PutRequest request;
            request.key = std::to_string(round);
            request.body = Payload::from_string(content);
            request.if_none_match = true;
            return (*made)->put(request);
        };
        auto other = std::async(std::launch::async, [&put] { return put("other"); });
        const auto own = put("own");
        const auto others = other.get();
        ASSERT_NE(own.has_value(), others.has_value());
        ASSERT_EQ((own ? others : own).error().errno_value, EEXIST);
        ASSERT_EQ(made->content(std::to_string(round)), own ? "own" : "other");
    }
}

TEST_F(WritebackTest, WhatItsPartsAreCopiedFromIsNotReplacedMeanwhile) {
    bucket.put_object("a", kLarge);
    const auto made = mount();
    const auto upload = (*made)->create_upload({"b", {}, "", "", "", {}});
    const auto part = (*made)->upload_part_copy({*upload, 1, "a", "", std::nullopt});
    ASSERT_TRUE(part);
    ASSERT_TRUE(made->put("a", "another"));
    const CompleteRequest complete{*upload, {*part}, "", 0, false, nullptr};
    EXPECT_EQ((*made)->complete_upload(complete).error().errno_value, ESTALE);
}

TEST_F(WritebackTest, ADirectoryThatCannotBeUsedIsAnError) {
    const SystemClock clock;
    ImpatientTimer timer(clock);
    const auto disk = make_blocking_executor(1);
    const auto opened = WritebackStore::open(
        {bucket, pool, timer, clock, *disk, directory() + "/none", 1, [](const auto&) { return false; }});
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().errno_value, ENOENT);
}

// Its answers to HEAD tell no ETags.
TEST_F(WritebackTest, ARemovalIsMadeOnAStoreThatTellsETagsInListsAlone) {
    bucket.describe_without_etags();
    const auto made = mount();
    ASSERT_TRUE(made->put("a", "1"));
    ASSERT_TRUE((*made)->remove("a", (*made)->head("a")->etag));
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_THAT(bucket.keys(), ElementsAre());
}

// A caller that asks for two names takes one for all there is.
TEST_F(WritebackTest, APageOfAListIsNotMadeShortByRemovals) {
    bucket.put_object("d/", "");
    for (const char* key : {"d/a", "d/b", "d/c"}) {
        bucket.put_object(key, "1");
    }
    const auto made = mount();
    ASSERT_TRUE((*made)->remove("d/a", bucket.info("d/a").etag));
    ASSERT_TRUE((*made)->remove("d/b", bucket.info("d/b").etag));
    ListRequest request;
    request.prefix = "d/";
    request.max_keys = 2;
    const auto page = (*made)->list(request);
    ASSERT_TRUE(page);
    ASSERT_EQ(page->objects.size(), 2U);
    EXPECT_EQ(page->objects[1].key, "d/c");
}

TEST_F(WritebackTest, ACopyOfWhatIsInTheBucketIsReadThereUntilItIsMade) {
    bucket.put_object("a", kLarge);
    const auto made = mount();
    ASSERT_TRUE(made->copy("a", "b"));
    ASSERT_TRUE((*made)->remove("a"));
    EXPECT_EQ(made->content("b", ByteRange{5, 10}), kLarge.substr(5, 10));
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_THAT(bucket.keys(), ElementsAre("b"));
    EXPECT_EQ(made->content("b"), kLarge);
    EXPECT_EQ(bucket.calls(Operation::kCopy), 1);
}

TEST_F(WritebackTest, AcknowledgementsWaitWhereTooMuchIsUnsent) {
    bucket.hold(Operation::kPut);
    const auto made = started(kLarge.size() + 1);
    ASSERT_TRUE(made->put("a", kLarge));
    ASSERT_TRUE(made->put("b", kLarge));
    auto third = std::async(std::launch::async, [&made] { return made->put("c", kLarge); });
    while (made->unsent().status().waiting == 0) {
        std::this_thread::yield();
    }
    EXPECT_FALSE((*made)->head("c"));
    bucket.release(Operation::kPut);
    EXPECT_TRUE(third.get());
    made->wait_until_sent();
    EXPECT_THAT(bucket.keys(), ElementsAre("a", "b", "c"));
}

TEST_F(WritebackTest, AnEndAnswersThoseThatWait) {
    bucket.inject({Operation::kPut, "a", store_error(EACCES, "AccessDenied", 403), 0, 1'000'000});
    auto made = started(1);
    ASSERT_TRUE(made->put("a", kLarge));
    std::vector<std::future<Result<PutResponse>>> waiting;
    for (int number = 0; number < 4; ++number) {
        waiting.push_back(std::async(std::launch::async,
                                     [&made, key = "b" + std::to_string(number)] { return made->put(key, kLarge); }));
    }
    while (made->unsent().status().waiting < 4) {
        std::this_thread::yield();
    }
    made->unsent().stop();
    for (auto& each : waiting) {
        EXPECT_EQ(each.get().error().errno_value, ECANCELED);
    }
    made.reset();
    made = mount();
    EXPECT_EQ(made->content("a"), kLarge);
    EXPECT_EQ((*made)->head("b0").error().errno_value, ENOENT);
}

TEST_F(WritebackTest, AnEndWaitsForCallsThatAreUnderWay) {
    bucket.put_object("a", kLarge);
    auto made = mount();
    bucket.hold(Operation::kHead);
    std::promise<Result<PutResponse>> copied;
    (**made).copy({"a", "b", "", false, std::nullopt, nullptr},
                  [&copied](Result<PutResponse> response) { copied.set_value(std::move(response)); });
    std::promise<Status> sent;
    ASSERT_TRUE(made->put("c", "x"));
    made->unsent().when_sent([&sent](Status status) { sent.set_value(std::move(status)); });
    auto ended = std::async(std::launch::async, [&made] { made.reset(); });
    EXPECT_EQ(sent.get_future().get().error().errno_value, ECANCELED);
    bucket.release(Operation::kHead);
    ended.get();
    EXPECT_EQ(copied.get_future().get().error().errno_value, ECANCELED);
}

TEST_F(WritebackTest, AListingHasWhatIsUnsent) {
    for (const char* key : {"d/1", "d/2", "e/1", "f"}) {
        bucket.put_object(key, "x");
    }
    const auto made = mount();
    ASSERT_TRUE((*made)->remove("d/1"));
    ASSERT_TRUE((*made)->remove("e/1"));
    ASSERT_TRUE(made->put("c/1", "y"));
    ASSERT_TRUE(made->put("g", "y"));
    ListRequest request;
    request.delimiter = "/";
    request.max_keys = 1;
    std::vector<std::string> names;
    do {
        const auto page = (*made)->list(request);
        ASSERT_TRUE(page);
        for (const ObjectInfo& object : page->objects) {
            names.push_back(object.key);
        }
        names.insert(names.end(), page->common_prefixes.begin(), page->common_prefixes.end());
        request.continuation_token = page->next_continuation_token;
    } while (!request.continuation_token.empty());
    std::sort(names.begin(), names.end());
    EXPECT_THAT(names, ElementsAre("c/", "d/", "f", "g"));
}

TEST_F(WritebackTest, AnExclusiveCommitWhoseAnswerWasLostIsRecognised) {
    Error lost;
    lost.outcome_unknown = true;
    lost.message = "no answer";
    bucket.inject({Operation::kPut, "record", lost, 0, 1, true});
    const auto made = started();
    PutRequest request;
    request.key = "record";
    request.body = Payload::from_string("text");
    request.if_none_match = true;
    ASSERT_TRUE((*made)->put(request));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("record"), "text");
}

}  // namespace
}  // namespace ckptfs::testing
