// SPDX-License-Identifier: Apache-2.0
// What mounts of one bucket tell each other where a disk acknowledges: of files that are not in the bucket yet, and of
// markers that wait for those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"

namespace ckptfs::testing {
namespace {

using ::testing::ElementsAre;

const std::string kUnsent = "p/.ckptfs/unsent/d/";
const std::string kLarge(100'000, 'x');

class ToldToOthers : public WritebackTest {
protected:
    ToldToOthers() {
        change_environment = [this](WritebackEnvironment& environment) {
            environment.prefix = "p/";
            environment.host = "node-1";
            environment.announced_as = [](const std::string& key) { return key.ends_with(".log") ? "" : key; };
            environment.is_direct = [](const std::string& key) { return key.starts_with("p/.ckptfs/"); };
            environment.may_mark = [this](const std::string& /*key*/, WallTime /*acknowledged*/,
                                          const std::function<void(Status)>& done) {
                ++asked;
                done(may_mark());
            };
            environment.gave_up = [this](const std::string& key, const Error& why) {
                given_up.emplace(key, why.errno_value);
            };
            environment.begin_file = [this](const std::string& /*key*/) {
                ++written;
                return [this] { --written; };
            };
        };
    }
    [[nodiscard]] bool is_told() const {
        const std::vector<std::string> keys = bucket.keys();
        return std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.starts_with(kUnsent); });
    }
    // Without what mounts tell each other.
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> keys = bucket.keys();
        std::erase_if(keys, [](const auto& key) { return key.starts_with("p/.ckptfs/"); });
        return keys;
    }

    std::function<Status()> may_mark = [] { return Status(); };
    std::atomic<int> asked = 0;
    std::atomic<int> written = 0;
    std::map<std::string, int> given_up;
};

Status refusal(bool retryable) {
    Error error;
    error.errno_value = EIO;
    error.retryable = retryable;
    error.message = "not now";
    return failure(std::move(error));
}

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
    bucket.hold(Operation::kCompleteUpload);
    bucket.hold(Operation::kUploadPart);
    bucket.hold(Operation::kCreateUpload);
    ASSERT_TRUE((*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, nullptr}));
    EXPECT_EQ(written, 0);
    // It began when it was begun to be written.
    EXPECT_EQ(bucket.keys(), told);
    for (const Operation operation : {Operation::kCompleteUpload, Operation::kUploadPart, Operation::kCreateUpload}) {
        bucket.release(operation);
    }
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
    ASSERT_TRUE(eventually([&] { return is_told() && !bucket.exists(before.front()); }));
    bucket.release(Operation::kPut);
    made->wait_until_sent();
    EXPECT_TRUE(eventually([this] { return !is_told(); }));
    EXPECT_THAT(files(), ElementsAre("p/d/a"));
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
    EXPECT_TRUE(given_up.empty());
}

TEST_F(ToldToOthers, AMarkerThatMayNotBeMadeIsGivenUp) {
    may_mark = [] { return refusal(false); };
    auto made = started();
    ASSERT_TRUE(made->put("p/d/.metadata", "x"));
    ASSERT_TRUE(made->put("p/e/a", kLarge));
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre("p/e/a"));
    EXPECT_EQ((*made)->head("p/d/.metadata").error().errno_value, ENOENT);
    EXPECT_THAT(given_up, ElementsAre(std::pair("p/d/.metadata", EIO)));
    kill(std::move(made));
    may_mark = [] { return Status(); };
    made = started();
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/d/.metadata"));
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

// --- another client was faster

PutRequest pinned(const std::string& key, const std::string& content, const std::string& etag) {
    PutRequest request;
    request.key = key;
    request.body = Payload::from_string(content);
    request.if_match = etag;
    return request;
}

class AnotherWasFaster : public ToldToOthers {
protected:
    // What is at "p/d/a" is another client's, and so is not replaced.
    std::unique_ptr<WritebackMount> refused() {
        bucket.put_object("p/d/a", "before");
        auto made = mount();
        EXPECT_TRUE((*made)->put(pinned("p/d/a", kLarge, bucket.info("p/d/a").etag)));
        EXPECT_TRUE(made->put("p/e/.metadata", "x"));
        bucket.put_object("p/d/a", "another's");
        made->unsent().start();
        EXPECT_TRUE(eventually([&] { return made->unsent().status().failing_key == "p/d/a"; }));
        return made;
    }
};

TEST_F(AnotherWasFaster, AFileIsKeptAndHoldsBackWhatComesAfterIt) {
    const auto made = refused();
    EXPECT_EQ(made->content("p/d/a"), kLarge);
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_FALSE(bucket.exists("p/e/.metadata"));
    EXPECT_THAT(made->unsent().status().failure, ::testing::HasSubstr("remove it here, or write it anew"));
}

TEST_F(AnotherWasFaster, AFileOfAFewBytesIsKeptAsWell) {
    bucket.put_object("p/latest", "before");
    const auto made = mount();
    EXPECT_TRUE((*made)->put(pinned("p/latest", "here", bucket.info("p/latest").etag)));
    bucket.put_object("p/latest", "another's");
    made->unsent().start();
    ASSERT_TRUE(eventually([&] { return made->unsent().status().failing_key == "p/latest"; }));
    EXPECT_EQ(made->content("p/latest"), "here");
    ASSERT_TRUE(made->put("p/latest", "anew"));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/latest"), "anew");
}

TEST_F(AnotherWasFaster, ItsRemovalLetsTheRestGoOn) {
    const auto made = refused();
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
    EXPECT_EQ(made->content("p/d/a"), "another's");
}

TEST_F(AnotherWasFaster, ToWriteItAnewReplacesWhatIsThere) {
    const auto made = refused();
    ASSERT_TRUE(made->put("p/d/a", "anew"));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "anew");
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
}

TEST_F(AnotherWasFaster, WhatIsMadeOfItsBytesIsNoWayOut) {
    const auto made = refused();
    const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
    const auto part = (*made)->upload_part_copy({upload, 1, "p/d/a", "", std::nullopt});
    ASSERT_TRUE((*made)->complete_upload({upload, {*part}, "", kLarge.size(), false, nullptr}));
    const int before = bucket.calls(Operation::kPut);
    ASSERT_TRUE(eventually([&] { return bucket.calls(Operation::kPut) > before + 3; }));
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_EQ(made->content("p/d/a"), kLarge);
    ASSERT_TRUE(made->put("p/d/a", "anew"));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "anew");
}

TEST_F(AnotherWasFaster, ItsBytesAreKeptUnderAnotherName) {
    const auto made = refused();
    ASSERT_TRUE(made->copy("p/d/a", "p/d/b"));
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_EQ(bucket.content("p/d/b"), kLarge);
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
}

TEST_F(AnotherWasFaster, TheWayOutDoesNotWaitForRoom) {
    bucket.put_object("p/d/a", "before");
    const auto made = mount(1);
    EXPECT_TRUE((*made)->put(pinned("p/d/a", kLarge, bucket.info("p/d/a").etag)));
    bucket.put_object("p/d/a", "another's");
    made->unsent().start();
    ASSERT_TRUE(eventually([&] { return made->unsent().status().failing_key == "p/d/a"; }));
    auto other = std::async(std::launch::async, [&made] { return made->put("p/d/b", kLarge); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 1; }));
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    EXPECT_TRUE(other.get());
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/b"), kLarge);
}

TEST_F(AnotherWasFaster, ACopyWhoseSourceIsGoneIsNoMore) {
    bucket.put_object("p/d/a", kLarge);
    const auto made = mount();
    ASSERT_TRUE(made->copy("p/d/a", "p/d/b"));
    ASSERT_TRUE(made->put("p/e/.metadata", "x"));
    ASSERT_TRUE(bucket.exists("p/d/a"));
    std::promise<Status> gone;
    bucket.remove({"p/d/a"}, [&gone](Status status) { gone.set_value(std::move(status)); });
    ASSERT_TRUE(gone.get_future().get());
    made->unsent().start();
    ASSERT_TRUE(eventually([&] { return made->unsent().status().failing_key == "p/d/b"; }));
    ASSERT_TRUE((*made)->remove("p/d/b", (*made)->head("p/d/b")->etag));
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre("p/e/.metadata"));
}

TEST_F(AnotherWasFaster, ARemovalOfAVersionThatIsGoneSaysSo) {
    bucket.put_object("p/d/a", "before");
    const std::string before = bucket.info("p/d/a").etag;
    bucket.put_object("p/d/a", "another's");
    const auto made = started();
    EXPECT_EQ((*made)->remove("p/d/a", before).error().errno_value, ESTALE);
    EXPECT_TRUE((*made)->remove("p/d/a", bucket.info("p/d/a").etag));
    EXPECT_TRUE((*made)->remove("p/d/none", "\"any\""));
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre());
}

}  // namespace
}  // namespace ckptfs::testing
