// SPDX-License-Identifier: Apache-2.0
// What is recorded of a bucket for --cache-only, and what is shown of it without the bucket.
#include "recorded_objects_fixture.h"

namespace ckptfs {
namespace {

TEST_F(RecordedObjects, WhatWasWrittenIsThereWithItsBytes) {
    ASSERT_TRUE(online->put(put("dir/small", "content", {{"a", "b"}, {"not UTF-8", "\xFF\xFE"}})));
    offline([&](SyncStore& store) {
        const ObjectInfo info = store.head("dir/small").value();
        EXPECT_EQ(info.metadata.at("not UTF-8"), "\xFF\xFE");
        EXPECT_EQ(info.key, "dir/small");
        EXPECT_EQ(info.etag, bucket_.info("dir/small").etag);
        EXPECT_EQ(info.size, 7U);
        EXPECT_EQ(info.metadata.at("a"), "b");
        EXPECT_EQ(read(store, "dir/small").value(), "content");
        EXPECT_EQ(store.head("dir/other").error().errno_value, ENOENT);
        EXPECT_EQ(read(store, "dir/other").error().errno_value, ENOENT);
    });
}

TEST_F(RecordedObjects, WhatWasReadIsThereWithItsBytes) {
    bucket_.put_object("small", "content", {{"a", "b"}});
    EXPECT_EQ(read(*online, "small").value(), "content");
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "small").value(), "content");
        EXPECT_EQ(store.head("small").value().metadata.at("a"), "b");
        GetRequest part = opening("small");
        part.range = ByteRange{2, 3, false};
        EXPECT_EQ(read(store, part).value(), "nte");
        part.range = ByteRange{0, 3, true};
        EXPECT_EQ(read(store, part).value(), "ent");
        part.range.reset();
        EXPECT_EQ(read(store, part).value(), "content");
        part.if_match = kWrongETag;
        EXPECT_EQ(read(store, part).error().errno_value, ESTALE);
    });
}

TEST_F(RecordedObjects, BytesThatAreNotThereAreAnErrorThatSaysWhatToDo) {
    bucket_.put_object("described", "content");
    bucket_.put_object("listed", "content");
    ASSERT_TRUE(online->head("described"));
    ASSERT_TRUE(online->put(put("large", std::string(kLargestRecorded + 1, 'x'))));
    ASSERT_TRUE(online->list(below("listed")));
    offline([&](SyncStore& store) {
        for (const char* const key : {"described", "listed", "large"}) {
            const Result<std::string> bytes = read(store, key);
            ASSERT_FALSE(bytes) << key;
            EXPECT_EQ(bytes.error().errno_value, EIO);
            EXPECT_NE(bytes.error().message.find("without --cache-only"), std::string::npos);
            EXPECT_FALSE(bytes.error().retryable);
        }
        EXPECT_EQ(store.head("large").value().size, kLargestRecorded + 1);
    });
}

TEST_F(RecordedObjects, AnUploadIsWhatItWasBegunWith) {
    upload("file", "some parts of a file", {{"a", "b"}});
    offline([&](SyncStore& store) {
        const ObjectInfo info = store.head("file").value();
        EXPECT_EQ(info.etag, bucket_.info("file").etag);
        EXPECT_EQ(info.size, 20U);
        EXPECT_EQ(info.metadata.at("a"), "b");
    });
}

TEST_F(RecordedObjects, ACopyIsWhatItWasMadeOf) {
    ASSERT_TRUE(online->put(put("from", "content", {{"a", "b"}})));
    CopyRequest copy;
    copy.source_key = "from";
    copy.key = "to";
    ASSERT_TRUE(online->copy(copy));
    copy.key = "described";
    copy.description.emplace();
    copy.description->metadata["a"] = "c";
    ASSERT_TRUE(online->copy(copy));
    ASSERT_TRUE(online->remove("from"));
    // Nothing is known of what it is a copy of.
    bucket_.put_object("unseen", "other");
    copy.source_key = "unseen";
    copy.key = "to";
    copy.description.reset();
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "to").value(), "content");
        EXPECT_EQ(store.head("to").value().metadata.at("a"), "b");
        EXPECT_EQ(store.head("to").value().etag, bucket_.info("to").etag);
        EXPECT_EQ(store.head("described").value().metadata.at("a"), "c");
        EXPECT_EQ(names(store, below("")), (std::vector<std::string>{"described", "to"}));
    });
    ASSERT_TRUE(online->copy(copy));
    offline([&](SyncStore& store) {
        EXPECT_GT(store.head("to").value().size, 0U) << "it must not be taken for an empty file";
        EXPECT_EQ(read(store, "to").error().errno_value, EIO);
    });
}

TEST_F(RecordedObjects, NewerVersionsReplaceEarlierOnes) {
    ASSERT_TRUE(online->put(put("written", "one")));
    ASSERT_TRUE(online->put(put("replaced", "one")));
    ASSERT_TRUE(online->put(put("removed", "one")));
    ASSERT_TRUE(online->put(put("found to be gone", "one")));
    bucket_.put_object("replaced", "two");
    ASSERT_TRUE(SyncStore(bucket_).remove("found to be gone"));
    ASSERT_TRUE(online->put(put("written", "two")));
    ASSERT_TRUE(online->head("replaced"));
    ASSERT_TRUE(online->remove_many({{"removed", ""}}));
    ASSERT_FALSE(online->head("found to be gone"));
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "written").value(), "two");
        EXPECT_EQ(read(store, "replaced").error().errno_value, EIO);
        EXPECT_EQ(store.head("replaced").value().etag, bucket_.info("replaced").etag);
        EXPECT_EQ(names(store, below("")), (std::vector<std::string>{"replaced", "written"}));
    });
}

TEST_F(RecordedObjects, WhatFailsIsNotRecorded) {
    ASSERT_TRUE(online->put(put("file", "one")));
    Error error;
    error.errno_value = EACCES;
    for (const Operation operation : {Operation::kPut, Operation::kRemove, Operation::kRemoveMany}) {
        bucket_.inject({operation, "", error});
    }
    EXPECT_FALSE(online->put(put("file", "two")));
    EXPECT_FALSE(online->remove("file"));
    static_cast<void>(online->remove_many({{"file", ""}}));
    offline([&](SyncStore& store) { EXPECT_EQ(read(store, "file").value(), bucket_.content("file")); });
}

// An answer that is older than a change must not take its place.
TEST_F(RecordedObjects, AnAnswerThatWasOvertakenIsNotRecorded) {
    ASSERT_TRUE(online->put(put("file", "one")));
    bucket_.hold_answers(Operation::kHead);
    bucket_.hold_answers(Operation::kList);
    bool is_described = false;
    bool is_listed = false;
    recording->head("file", [&](const Result<ObjectInfo>&) { is_described = true; });
    recording->list(below(""), [&](const Result<ListResponse>&) { is_listed = true; });
    ASSERT_TRUE(online->put(put("file", "two")));
    ASSERT_TRUE(online->put(put("new", "file")));
    bucket_.release(Operation::kHead);
    bucket_.release(Operation::kList);
    EXPECT_TRUE(is_described && is_listed);
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "file").value(), "two");
        EXPECT_EQ(read(store, "new").value(), "file");
    });
}

TEST_F(RecordedObjects, WhatCkptfsHidesIsNotRecorded) {
    ASSERT_TRUE(online->put(put(".ckptfs/mounts/one", "heartbeat")));
    ASSERT_TRUE(online->put(put("file", "content")));
    ASSERT_TRUE(online->list(below("")));
    ASSERT_TRUE(online->list(below(".ckptfs/")));
    offline([&](SyncStore& store) { EXPECT_EQ(names(store, below("")), std::vector<std::string>{"file"}); });
}

TEST_F(RecordedObjects, AreListedAsTheBucketIs) {
    for (int number = 0; number < 300; ++number) {
        const std::string name = std::to_string(number);
        ASSERT_TRUE(online->put(put(name + "/" + name, "a")));
        ASSERT_TRUE(online->put(put("flat/" + name, "a")));
        ASSERT_TRUE(online->put(put("deep/" + std::to_string(number % 3) + "/" + name, "a")));
    }
    ASSERT_TRUE(online->put(put("\xFF\xFF/last", "a")));
    offline([&](SyncStore& store) {
        SyncStore there(bucket_);
        for (const char* const prefix : {"", "flat/", "deep/", "deep/1", "\xFF", "none"}) {
            for (const char* const delimiter : {"", "/"}) {
                for (const int max_keys : {1, 3, 1000}) {
                    EXPECT_EQ(names(store, below(prefix, delimiter, max_keys)), names(there, below(prefix, delimiter)))
                        << prefix << " " << delimiter << " " << max_keys;
                }
            }
        }
        ListRequest late = below("flat/", "/");
        late.start_after = "flat/5";
        EXPECT_EQ(names(store, late), names(there, late));
    });
}

TEST_F(RecordedObjects, BucketsAreToldApart) {
    ASSERT_TRUE(online->put(put("file", "content")));
    begin(1 << 30, "endpoint/bucket2");
    offline([&](SyncStore& store) { EXPECT_EQ(read(store, "file").value(), "content"); });
    end();
    const auto other = RecordedStore::open(directory(), "endpoint/bucket2", timer);
    ASSERT_TRUE(other);
    SyncStore store(**other);
    EXPECT_EQ(names(store, below("")), std::vector<std::string>{});
}

TEST_F(RecordedObjects, OldOnesGoWhereTheyTakeTooMuch) {
    constexpr std::uint64_t kTwoMiB = 2 << 20;
    begin(kTwoMiB);
    const std::string content(100'000, 'x');
    for (int number = 0; number < 60; ++number) {
        ASSERT_TRUE(online->put(put("file " + std::to_string(number), content)));
        clock.move(std::chrono::hours(1));
        timer.run(ObjectRecorder::kWritesAfter);
    }
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "file 59").value(), content);
        EXPECT_EQ(store.head("file 0").error().errno_value, ENOENT);
        const std::size_t left = names(store, below("")).size();
        EXPECT_GE(left, 10U);
        EXPECT_LE(left, 20U);
    });
}

TEST_F(RecordedObjects, DroppedBytesAreGone) {
    ASSERT_TRUE(online->put(put("file", "content")));
    recorder->drop("file");
    offline([&](SyncStore& store) {
        EXPECT_EQ(read(store, "file").error().errno_value, EIO);
        EXPECT_TRUE(store.head("file"));
    });
}

// Of a store that tells no ETags, only its time tells a version of the same size from another.
TEST_F(RecordedObjects, BytesAreThoseOfTheTimeThatIsShownWhereThereIsNoETag) {
    bucket_.describe_without_etags();
    bucket_.put_object("k", "earlier");
    ASSERT_TRUE(read(*online, "k"));
    const WallTime earlier = bucket_.info("k").last_modified;
    offline([&](SyncStore& store) {
        GetRequest request = opening("k");
        request.if_size = 7;
        request.if_modified = earlier;
        EXPECT_EQ(read(store, request).value(), "earlier");
        request.if_modified = earlier + std::chrono::seconds(2);
        EXPECT_EQ(read(store, request).error().errno_value, ESTALE);
    });
    bucket_.advance_clock(std::chrono::seconds(2));
    bucket_.put_object("k", "later!!");
    ASSERT_TRUE(online->head("k"));
    offline([&](SyncStore& store) {
        EXPECT_GE(store.head("k").value().last_modified, earlier + std::chrono::seconds(2));
        EXPECT_EQ(read(store, "k").error().errno_value, EIO);
    });
}

}  // namespace
}  // namespace ckptfs
