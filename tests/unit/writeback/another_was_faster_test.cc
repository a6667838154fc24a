// SPDX-License-Identifier: Apache-2.0
// What was acknowledged here, and another client was faster with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "unit/writeback/told_to_others_fixture.h"

namespace ckptfs::testing {
namespace {

using ::testing::ElementsAre;

PutRequest pinned(const std::string& key, const std::string& content, const std::string& etag) {
    PutRequest request;
    request.key = key;
    request.body = Payload::from_string(content);
    request.if_match = etag;
    return request;
}

class AnotherWasFaster : public ToldToOthers {
protected:
    void remove_from_bucket(const std::string& key) {
        std::promise<Status> gone;
        bucket.remove({key}, [&gone](Status status) { gone.set_value(std::move(status)); });
        ASSERT_TRUE(gone.get_future().get());
    }
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
    EXPECT_TRUE(eventually([this] { return lost().contains("p/d/a"); }));
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

// Though the first is in the bucket later than the second was acknowledged.
TEST_F(AnotherWasFaster, OfTwoVersionsThatAMountLeftTheSecondStays) {
    auto made = mount();
    for (const char* id : {"1", "2"}) {
        ASSERT_TRUE(made->put("p/a", kLarge + id, {{std::string(kWriteIdMetadata), id}}));
    }
    kill(std::move(made));
    bucket.advance_clock(std::chrono::seconds(30));
    made = started();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/a"), kLarge + "2");
}

TEST_F(AnotherWasFaster, ARemovalSparesWhatAnotherMountHasWrittenSince) {
    bucket.put_object("p/a", "1");
    const auto made = mount();
    ASSERT_TRUE((*made)->remove("p/a", bucket.info("p/a").etag));
    EXPECT_EQ((*made)->head("p/a").error().errno_value, ENOENT);
    bucket.put_object("p/a", "2");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/a"), "2");
    EXPECT_EQ(made->content("p/a"), "2");
}

TEST_F(AnotherWasFaster, ARemovalSparesItOnAStoreThatIgnoresTheCondition) {
    bucket.ignore_delete_conditions();
    bucket.put_object("p/a", "1");
    bucket.put_object("p/b", "1");
    const auto made = mount();
    ASSERT_TRUE((*made)->remove("p/a", bucket.info("p/a").etag));
    ASSERT_TRUE((*made)->remove("p/b", bucket.info("p/b").etag));
    bucket.put_object("p/a", "2");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_THAT(files(), ElementsAre("p/a"));
    EXPECT_EQ(bucket.content("p/a"), "2");
}

// Its mount was killed before it could note that. The store's answers to HEAD tell no ETags.
TEST_F(AnotherWasFaster, WhatWasMadeIsNotTakenForReplaced) {
    auto made = mount();
    ASSERT_TRUE(made->put("p/a", kLarge, {{std::string(kWriteIdMetadata), "1"}}));
    ASSERT_TRUE(made->copy("p/a", "p/b"));
    bucket.put_object("p/a", kLarge, {{std::string(kWriteIdMetadata), "1"}});
    bucket.describe_without_etags();
    kill(std::move(made));
    made = started();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/b"), kLarge);
}

// Between the two answers that tell whether it was made, and its ETag.
TEST_F(AnotherWasFaster, ARemovalSparesWhatReplacesTheVersionWhileItIsLookedAt) {
    auto made = mount();
    ASSERT_TRUE(made->put("p/a", kLarge, {{std::string(kWriteIdMetadata), "1"}}));
    ASSERT_TRUE((*made)->remove("p/a", (*made)->head("p/a")->etag));
    bucket.put_object("p/a", kLarge, {{std::string(kWriteIdMetadata), "1"}});
    bucket.describe_without_etags();
    kill(std::move(made));
    bucket.hold(Operation::kList);
    made = started();
    ASSERT_TRUE(bucket.wait_until_held(Operation::kList, 1));
    bucket.put_object("p/a", "another's");
    bucket.release(Operation::kList);
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/a"), "another's");
}

// Both have their bytes in one file on the disk.
TEST_F(AnotherWasFaster, WhatWasSavedUnderAnotherNameOutlivesItsRemovalByTheNextMount) {
    {
        const auto made = refused();
        EXPECT_TRUE(made->copy("p/d/a", "p/d/b"));
        made->cut_off();
    }
    const auto next = mount();
    EXPECT_EQ(next->content("p/d/b"), kLarge);
    EXPECT_TRUE((*next)->remove("p/d/a"));
    next->unsent().start();
    next->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/b"), kLarge);
    EXPECT_EQ(next->content("p/d/b"), kLarge);
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

// By a mount that has another place on the disk as its own.
TEST_F(AnotherWasFaster, ToWriteItAnewElsewhereIsAWayOutToo) {
    const auto made = refused();
    made->unsent().replaced_elsewhere("p/d/b");
    EXPECT_EQ(made->unsent().status().changes, 2U);
    made->unsent().replaced_elsewhere("p/d/a");
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
}

// It may have been on its way then.
TEST_F(AnotherWasFaster, ToWriteItAnewElsewhereIsAWayOutBeforeItIsKnown) {
    bucket.put_object("p/d/a", "before");
    const auto made = mount();
    ASSERT_TRUE((*made)->put(pinned("p/d/a", kLarge, bucket.info("p/d/a").etag)));
    ASSERT_TRUE(made->put("p/e/.metadata", "x"));
    bucket.put_object("p/d/a", "another's");
    made->unsent().replaced_elsewhere("p/d/a");
    made->unsent().start();
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
}

// Of other mounts of the disk, which are sent by this one, too.
TEST_F(AnotherWasFaster, WhatIsSavedHereComesAfterWhatWasLeftElsewhereOfTheName) {
    {
        auto before = mount();
        ASSERT_TRUE(before->put("p/left", "left"));
        kill(std::move(before));
    }
    std::atomic<bool> is_left = true;
    change_environment = [&is_left, others = change_environment](WritebackEnvironment& environment) {
        others(environment);
        environment.keys_elsewhere = [&is_left] {
            return is_left ? UnsentChanges::Keys{"p/latest", "p/left", "p/source"} : UnsentChanges::Keys();
        };
    };
    const auto made = started();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    bucket.put_object("p/source", kLarge);
    ASSERT_TRUE(made->copy("p/source", "p/copy"));
    ASSERT_TRUE(made->put("p/latest", "d"));
    // Of before this mount: it may be what the others wait for.
    ASSERT_TRUE(eventually([&] { return bucket.exists("p/left") && bucket.exists("p/d/a"); }));
    EXPECT_TRUE(eventually([&] { return made->unsent().status().changes == 2; }));
    EXPECT_FALSE(bucket.exists("p/copy"));
    is_left = false;
    made->wait_until_sent();
    EXPECT_EQ(bucket.content("p/latest"), "d");
    EXPECT_TRUE(bucket.exists("p/copy"));
}

TEST_F(AnotherWasFaster, TheWayOutElsewhereDoesNotWaitForRoomHere) {
    std::atomic<bool> is_refused = false;
    change_environment = [&is_refused, others = change_environment](WritebackEnvironment& environment) {
        others(environment);
        environment.keys_elsewhere = [] { return UnsentChanges::Keys{"p/d/a", "p/d/b"}; };
        environment.is_way_out_elsewhere = [&is_refused](const std::string& key) {
            return is_refused && key == "p/d/b";
        };
    };
    auto made = mount(1);
    made->unsent().start();
    ASSERT_TRUE(made->put("p/d/a", kLarge));
    auto waiting = std::async(std::launch::async, [&made] { return made->put("p/d/a", kLarge); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 1; }));
    is_refused = true;
    EXPECT_TRUE(made->put("p/d/b", kLarge));
    // It came before that was known.
    made->unsent().let_through("p/d/a");
    EXPECT_TRUE(waiting.get());
}

TEST_F(AnotherWasFaster, WhatIsTriedAgainElsewhereComesBeforeItsRemovalHere) {
    std::atomic<bool> is_refused = false;
    std::atomic<bool> is_under_way = false;
    change_environment = [&, others = change_environment](WritebackEnvironment& environment) {
        others(environment);
        environment.keys_elsewhere = [&] {
            return is_under_way ? UnsentChanges::Keys{"p/d/a"} : UnsentChanges::Keys();
        };
        environment.is_way_out_elsewhere = [&](const std::string&) { return is_refused.load(); };
    };
    bucket.put_object("p/d/a", "another's");
    const auto made = started();
    // It has looked, and there was nothing.
    ASSERT_TRUE(made->put("p/d/b", kLarge));
    made->wait_until_sent();
    is_refused = is_under_way = true;
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    ASSERT_TRUE(made->put("p/d/c", kLarge));
    EXPECT_TRUE(bucket.exists("p/d/a"));
    is_refused = is_under_way = false;
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/d/a"));
}

// Which began to wait before it was known.
TEST_F(AnotherWasFaster, WhatIsMadeOfItIsLetThroughAsWell) {
    bucket.put_object("p/d/a", "before");
    const auto made = mount(2 * kLarge.size());
    ASSERT_TRUE((*made)->put(pinned("p/d/a", kLarge, bucket.info("p/d/a").etag)));
    ASSERT_TRUE(made->copy("p/d/a", "p/d/b"));
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    ASSERT_TRUE(made->put("p/d/c", kLarge));
    auto removed = std::async(std::launch::async, [&made] { return (*made)->remove("p/d/b"); });
    ASSERT_TRUE(eventually([&] { return made->unsent().status().waiting == 1; }));
    bucket.put_object("p/d/a", "another's");
    made->unsent().start();
    EXPECT_TRUE(removed.get());
    made->wait_until_sent();
    EXPECT_FALSE(bucket.exists("p/d/b"));
}

TEST_F(AnotherWasFaster, TellsTheKeysOfWhatIsTriedAgain) {
    const auto made = refused();
    bucket.hold(Operation::kPut);
    EXPECT_TRUE(eventually([&] { return made->unsent().keys() == UnsentChanges::Keys{"p/d/a", "p/e/.metadata"}; }));
    bucket.release(Operation::kPut);
}

TEST_F(AnotherWasFaster, TellsTheKeysOfAllThatWaitsButForWhatWasRefused) {
    const auto made = refused();
    EXPECT_TRUE(eventually([&] { return made->unsent().keys() == UnsentChanges::Keys{"p/e/.metadata"}; }));
    const auto waiting = mount();
    ASSERT_TRUE(waiting->put("p/d/b", kLarge));
    ASSERT_TRUE(waiting->copy("p/d/b", "p/d/c"));
    EXPECT_THAT(waiting->unsent().keys(), ::testing::IsSupersetOf({"p/d/b", "p/d/c"}));
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

// What is kept of the version before is copied from it.
TEST_F(AnotherWasFaster, AnAppendWhoseVersionIsGoneIsRefusedAndHasTheSameWaysOut) {
    for (const bool is_replaced : {true, false}) {
        for (const bool is_removed_here : {true, false}) {
            SCOPED_TRACE(std::to_string(is_replaced) + std::to_string(is_removed_here));
            bucket.put_object("p/d/a", kLarge);
            const auto made = mount();
            const auto upload = (*made)->create_upload({"p/d/a", {}, "", "", "", {}}).value();
            const auto kept = (*made)->upload_part_copy({upload, 1, "p/d/a", bucket.info("p/d/a").etag, std::nullopt});
            const Payload tail = Payload::from_string("+");
            const auto added = (*made)->upload_part({upload, 2, tail, crc32c(tail)});
            ASSERT_TRUE((*made)->complete_upload({upload, {*kept, *added}, "", kLarge.size() + 1, false, nullptr}));
            ASSERT_TRUE(made->put("p/e/.metadata", "x"));
            if (is_replaced) {
                bucket.put_object("p/d/a", "another's");
            } else {
                remove_from_bucket("p/d/a");
            }
            made->unsent().start();
            ASSERT_TRUE(eventually([&] { return lost().contains("p/d/a"); }));
            EXPECT_THAT(made->unsent().status().failure, ::testing::HasSubstr("remove it here, or write it anew"));
            EXPECT_FALSE(bucket.exists("p/e/.metadata"));
            ASSERT_TRUE(is_removed_here ? (*made)->remove("p/d/a", (*made)->head("p/d/a")->etag)
                                        : Status(made->put("p/d/a", "anew") ? Status() : failure(EIO, "put")));
            made->wait_until_sent();
            EXPECT_TRUE(bucket.exists("p/e/.metadata"));
            remove_from_bucket("p/e/.metadata");
        }
    }
}

// Its downloads tell no version: whose bytes they were is known at the end.
class BytesOfAnother : public FakeStore {
public:
    BytesOfAnother() : FakeStore(0) {}
    void get(GetRequest request, StoreDone<GetResponse> done) override {
        if (request.on_unidentified) {
            request.on_unidentified();
        }
        FakeStore::get(std::move(request), [done = std::move(done)](const Result<GetResponse>&) {
            done(failure(store_error(ESTALE, "PreconditionFailed", 412)));
        });
    }
};

TEST_F(AnotherWasFaster, BytesOfItAreNotThoseOfAnUnsentChange) {
    BytesOfAnother store;
    store.put_object("a", kLarge);
    WritebackMount made(store, pool, directory(), std::uint64_t{1} << 30);
    const auto upload = made->create_upload({"a", {}, "", "", "", {}}).value();
    const auto kept = made->upload_part_copy({upload, 1, "a", store.info("a").etag, std::nullopt});
    ASSERT_TRUE(made->complete_upload({upload, {*kept}, "", kLarge.size(), false, nullptr}));
    EXPECT_EQ(made.content("a").error().errno_value, ESTALE);
}

// Before it was known that another was faster.
TEST_F(AnotherWasFaster, WhatWasMadeOfItUnderAnotherNameIsNoWayInOnceThatIsReplacedToo) {
    bucket.put_object("p/d/a", "before");
    const auto made = mount();
    ASSERT_TRUE((*made)->put(pinned("p/d/a", kLarge, bucket.info("p/d/a").etag)));
    ASSERT_TRUE(made->copy("p/d/a", "p/d/b"));
    ASSERT_TRUE((*made)->remove("p/d/a", (*made)->head("p/d/a")->etag));
    ASSERT_TRUE(made->put("p/e/.metadata", "x"));
    bucket.put_object("p/d/a", "another's");
    made->unsent().start();
    ASSERT_TRUE(eventually([&] { return lost().contains("p/d/a"); }));
    EXPECT_FALSE(bucket.exists("p/e/.metadata"));
    EXPECT_EQ(made->content("p/d/b"), kLarge) << "its bytes are on the disk alone";
    ASSERT_TRUE(made->put("p/d/b", "anew"));
    made->wait_until_sent();
    EXPECT_TRUE(bucket.exists("p/e/.metadata"));
    EXPECT_EQ(bucket.content("p/d/a"), "another's");
    EXPECT_EQ(bucket.content("p/d/b"), "anew");
}

TEST_F(AnotherWasFaster, ACopyWhoseSourceIsGoneIsNoMore) {
    bucket.put_object("p/d/a", kLarge);
    const auto made = mount();
    ASSERT_TRUE(made->copy("p/d/a", "p/d/b"));
    ASSERT_TRUE(made->put("p/e/.metadata", "x"));
    ASSERT_TRUE(bucket.exists("p/d/a"));
    remove_from_bucket("p/d/a");
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
