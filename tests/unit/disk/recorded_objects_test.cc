// SPDX-License-Identifier: Apache-2.0
// What is recorded of a bucket for --cache-only, and what is shown of it without the bucket.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "disk/object_recorder.h"
#include "disk/recorded_store.h"
#include "disk/recording_store.h"
#include "support/fake_store.h"
#include "support/hand_timer.h"
#include "support/manual_clock.h"
#include "support/sync_store.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

using namespace testing;

constexpr const char* kBucket = "endpoint/bucket";
constexpr std::uint64_t kPartSize = 8;

class RecordedObjects : public ::testing::Test {
protected:
    RecordedObjects() { begin(); }

    void begin(std::uint64_t limit = 1 << 30, const char* bucket = kBucket) {
        end();
        recorder = std::make_unique<ObjectRecorder>(ObjectRecorder::Config{directory(), bucket, limit}, clock, timer);
        recording = std::make_unique<RecordingStore>(bucket_, *recorder, ".ckptfs/");
        online.emplace(*recording);
    }
    // What waits is written.
    void end() {
        online.reset();
        recording.reset();
        if (recorder != nullptr) {
            EXPECT_TRUE(recorder->stop(std::chrono::seconds(30)));
        }
        recorder.reset();
    }
    // Asks what is recorded, once the recorder has ended.
    void offline(const std::function<void(SyncStore&)>& ask) {
        end();
        auto store = RecordedStore::open(directory(), kBucket, timer);
        ASSERT_TRUE(store) << store.error().message;
        SyncStore recorded(**store);
        ask(recorded);
        EXPECT_TRUE((*store)->stop());
        begin();
    }

    [[nodiscard]] std::string directory() const { return temporary.path().string(); }
    static PutRequest put(std::string key, std::string content, Metadata metadata = {}) {
        PutRequest request;
        request.key = std::move(key);
        request.body = Payload::from_string(std::move(content));
        request.metadata = std::move(metadata);
        return request;
    }
    static GetRequest opening(std::string key) {
        GetRequest request;
        request.key = std::move(key);
        request.range = ByteRange{0, kLargestRecorded, true};
        request.for_open = true;
        request.on_body = [](ByteSpan) { return true; };
        return request;
    }
    // Its bytes.
    static Result<std::string> read(SyncStore& store, GetRequest request) {
        std::string bytes;
        request.on_body = [&](ByteSpan span) {
            bytes += as_text(span);
            return true;
        };
        const Result<GetResponse> response = store.get(std::move(request));
        return response ? Result<std::string>(bytes) : failure(response.error());
    }
    static Result<std::string> read(SyncStore& store, const std::string& key) { return read(store, opening(key)); }
    static ListRequest below(std::string prefix, std::string delimiter = "", int max_keys = 1000) {
        ListRequest request;
        request.prefix = std::move(prefix);
        request.delimiter = std::move(delimiter);
        request.max_keys = max_keys;
        return request;
    }
    // All pages, in the order of their names.
    static std::vector<std::string> names(SyncStore& store, ListRequest request) {
        std::vector<std::string> all;
        do {
            const Result<ListResponse> page = store.list(request);
            EXPECT_TRUE(page);
            if (!page) {
                break;
            }
            for (const ObjectInfo& object : page->objects) {
                all.push_back(object.key);
            }
            all.insert(all.end(), page->common_prefixes.begin(), page->common_prefixes.end());
            request.continuation_token = page->next_continuation_token;
        } while (!request.continuation_token.empty());
        std::sort(all.begin(), all.end());
        return all;
    }
    void upload(const std::string& key, const std::string& content, Metadata metadata) {
        CreateUploadRequest create;
        create.key = key;
        create.metadata = std::move(metadata);
        const UploadId id = online->create_upload(create).value();
        CompleteRequest complete;
        complete.upload = id;
        for (std::size_t at = 0; at < content.size(); at += kPartSize) {
            UploadPartRequest part;
            part.upload = id;
            part.part_number = static_cast<int>(at / kPartSize) + 1;
            part.body = Payload::from_string(content.substr(at, kPartSize));
            complete.parts.push_back(online->upload_part(std::move(part)).value());
        }
        complete.size = content.size();
        ASSERT_TRUE(online->complete_upload(complete));
    }

    TemporaryDirectory temporary;
    FakeStore bucket_{kPartSize};
    ManualClock clock;
    HandTimer timer;
    std::unique_ptr<ObjectRecorder> recorder;
    std::unique_ptr<RecordingStore> recording;
    std::optional<SyncStore> online;
};

TEST_F(RecordedObjects, WhatWasWrittenIsThereWithItsBytes) {
    ASSERT_TRUE(online->put(put("dir/small", "content", {{"a", "b"}})));
    offline([&](SyncStore& store) {
        const ObjectInfo info = store.head("dir/small").value();
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
    offline([&](SyncStore& store) { EXPECT_EQ(store.head("to").error().errno_value, ENOENT); });
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
    constexpr std::uint64_t kLimit = 2 << 20;
    begin(kLimit);
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

TEST_F(RecordedObjects, MoreThanCanWaitIsForgottenRatherThanKeptAsItWas) {
    ASSERT_TRUE(online->put(put("file", "one")));
    end();
    begin();
    ASSERT_TRUE(online->put(put("file", "two")));
    for (int number = 0; number < 70'000; ++number) {
        recorder->gone("other");
    }
    ASSERT_TRUE(online->put(put("after", "that")));
    offline([&](SyncStore& store) {
        EXPECT_EQ(store.head("file").error().errno_value, ENOENT);
        EXPECT_EQ(read(store, "after").value(), "that");
    });
}

TEST_F(RecordedObjects, NothingWasRecordedYet) {
    end();
    const auto store = RecordedStore::open(directory(), kBucket, timer);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().errno_value, ENOENT);
    EXPECT_NE(store.error().message.find("--cache-dir"), std::string::npos);
}

TEST_F(RecordedObjects, ChangesAreRefused) {
    ASSERT_TRUE(online->put(put("file", "content")));
    offline([&](SyncStore& store) {
        EXPECT_EQ(store.put(put("file", "other")).error().errno_value, EROFS);
        EXPECT_EQ(store.remove("file").error().errno_value, EROFS);
        EXPECT_EQ(store.remove_many({{"file", ""}}).error().errno_value, EROFS);
        EXPECT_EQ(store.copy({"file", "copy", "", false, {}}).error().errno_value, EROFS);
        EXPECT_EQ(store.create_upload({}).error().errno_value, EROFS);
        EXPECT_EQ(read(store, "file").value(), "content");
    });
}

// Whatever a bad disk or a power cut leaves: it is as it was recorded, or it is not there.
TEST_F(RecordedObjects, DamageIsFound) {
    std::mt19937 dice(20'261'129);
    const auto content = [](int number) { return std::string(5'000, static_cast<char>('a' + number % 26)); };
    constexpr int kFiles = 40;
    int found = 0;
    int missing = 0;
    for (int round = 0; round < 60; ++round) {
        for (int number = 0; number < kFiles; ++number) {
            ASSERT_TRUE(online->put(put(std::to_string(number), content(number), {{"n", std::to_string(number)}})));
        }
        end();
        {
            std::fstream file(ObjectRecord::path_in(directory()), std::ios::in | std::ios::out | std::ios::binary);
            file.seekg(0, std::ios::end);
            const auto size = static_cast<std::uint64_t>(file.tellg());
            for (int flips = 0; flips < 20; ++flips) {
                const auto at = static_cast<std::streamoff>(dice() % size);
                file.seekg(at);
                const int byte = file.get();
                file.seekp(at);
                file.put(static_cast<char>(byte ^ (1 << dice() % 8)));
            }
        }
        offline([&](SyncStore& store) {
            for (int number = 0; number < kFiles; ++number) {
                const std::string key = std::to_string(number);
                if (const Result<ObjectInfo> info = store.head(key)) {
                    EXPECT_EQ(info->metadata.at("n"), key);
                    EXPECT_EQ(info->size, 5'000U);
                }
                const Result<std::string> bytes = read(store, key);
                EXPECT_TRUE(!bytes || *bytes == content(number)) << key;
                ++(bytes ? found : missing);
            }
        });
    }
    EXPECT_GT(found, 0);
    EXPECT_GT(missing, 0);
}

// Of a bucket that others change, too: each name that is shown was there in the version that is shown, when it was seen
// last, and after a listing there are no others.
TEST_F(RecordedObjects, RandomHistoriesEndAsTheBucketWasSeen) {
    for (unsigned seed = 0; seed < 30; ++seed) {
        std::mt19937 dice(seed);
        const auto roll = [&](unsigned sides) { return static_cast<int>(dice() % sides); };
        SyncStore others(bucket_);
        for (int step = 0; step < 300; ++step) {
            const std::string key = std::string(1, static_cast<char>('a' + roll(3))) + "/" + std::to_string(roll(2)) +
                                    "/" + std::to_string(roll(4));
            SyncStore& store = roll(3) == 0 ? others : *online;
            switch (roll(8)) {
                case 0:
                case 1:
                    ASSERT_TRUE(store.put(put(key, "content " + std::to_string(dice()))));
                    break;
                case 2:
                    ASSERT_TRUE(store.remove(key));
                    break;
                case 3:
                    ASSERT_TRUE(store.remove_many({{key, ""}, {"a/0/0", ""}}));
                    break;
                case 4:
                    static_cast<void>(store.copy({key, "b/1/1", "", false, {}}));
                    break;
                case 5:
                    static_cast<void>(store.head(key));
                    break;
                case 6:
                    static_cast<void>(read(store, key));
                    break;
                default:
                    names(store, below(key.substr(0, static_cast<std::size_t>(roll(3) * 2)), roll(2) == 0 ? "" : "/",
                                       1 + roll(10)));
            }
            if (roll(30) == 0) {
                timer.run(ObjectRecorder::kWritesAfter);
            }
        }
        names(*online, below("", "", 1 + roll(10)));
        offline([&](SyncStore& store) {
            EXPECT_EQ(names(store, below("")), bucket_.keys()) << "seed " << seed;
            for (const std::string& key : bucket_.keys()) {
                EXPECT_EQ(store.head(key).value().etag, bucket_.info(key).etag) << key << ", seed " << seed;
                const Result<std::string> bytes = read(store, key);
                EXPECT_TRUE(!bytes || *bytes == bucket_.content(key)) << key << ", seed " << seed;
            }
        });
    }
}

TEST(RecentChanges, AreForgottenOnlyAsChangesOfAll) {
    RecentChanges changes;
    const std::uint64_t before = changes.now();
    changes.note("a");
    const std::uint64_t after = changes.now();
    EXPECT_TRUE(changes.has_changed("a", before));
    EXPECT_FALSE(changes.has_changed("b", before));
    EXPECT_FALSE(changes.has_changed("a", after));
    for (std::size_t number = 0; number < RecentChanges::kMost; ++number) {
        changes.note("other " + std::to_string(number));
    }
    EXPECT_TRUE(changes.has_changed("a", before));
    EXPECT_TRUE(changes.has_changed("b", before));
    EXPECT_FALSE(changes.has_changed("a", changes.now()));
}

}  // namespace
}  // namespace ckptfs
