// SPDX-License-Identifier: Apache-2.0
// What is recorded for --cache-only stays as it was, or is said not to be there: with too much of it, with other
// mounts, on a bad disk, and in random histories.
#include "recorded_objects_fixture.h"

namespace ckptfs {
namespace {

TEST_F(RecordedObjects, MoreThanCanWaitIsForgottenRatherThanKeptAsItWas) {
    ASSERT_TRUE(online->put(put("file", "one")));
    end();
    begin();
    ASSERT_TRUE(online->put(put("file", "two")));
    for (int number = 0; number < 70'000; ++number) {
        recorder->gone("other", {clock.now(), true});
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

// Whatever a bad disk leaves: what is shown is as it was recorded, and the file is there, or the database says of
// itself that it is damaged.
TEST_F(RecordedObjects, DamageIsFound) {
    std::mt19937 dice(20'261'129);
    const auto content = [](int number) { return std::string(5'000, static_cast<char>('a' + number % 26)); };
    constexpr int kFiles = 40;
    int found = 0;
    int failed = 0;
    for (int round = 0; round < 60; ++round) {
        std::vector<std::string> all;
        for (int number = 0; number < kFiles; ++number) {
            all.push_back(std::to_string(number));
            ASSERT_TRUE(online->put(put(all.back(), content(number), {{"n", all.back()}})));
        }
        std::sort(all.begin(), all.end());
        end();
        flip_bits(dice, 20);
        auto store = RecordedStore::open(directory(), kBucket, timer);
        if (!store) {
            EXPECT_EQ(store.error().errno_value, EIO);
            begin();
            continue;
        }
        const bool is_damaged = find_damage();
        SyncStore recorded(**store);
        for (int number = 0; number < kFiles; ++number) {
            const std::string key = std::to_string(number);
            const Result<ObjectInfo> info = recorded.head(key);
            EXPECT_TRUE(info || is_damaged || info.error().errno_value == EIO) << key;
            if (info && !info->metadata.empty()) {
                EXPECT_EQ(info->metadata.at("n"), key);
                EXPECT_EQ(info->size, 5'000U);
            }
            const Result<std::string> bytes = read(recorded, key);
            EXPECT_TRUE(!bytes || *bytes == content(number)) << key;
            EXPECT_TRUE(bytes || is_damaged || bytes.error().errno_value == EIO) << key;
            ++(bytes ? found : failed);
        }
        if (const Result<ListResponse> page = recorded.list(below("")); page && !is_damaged) {
            EXPECT_EQ(names(recorded, below("")).size(), all.size());
        }
        EXPECT_TRUE((*store)->stop());
        begin();
    }
    EXPECT_GT(found, 0);
    EXPECT_GT(failed, 0);
}

TEST_F(RecordedObjects, WhatIsLookedAtIsLeftAsItIs) {
    ASSERT_TRUE(online->put(put("file", "content")));
    end();
    {
        std::fstream file(ObjectRecord::path_in(directory()), std::ios::in | std::ios::out | std::ios::binary);
        file.write("no database", 11);
    }
    const auto store = RecordedStore::open(directory(), kBucket, timer);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().errno_value, EIO);
    EXPECT_GT(std::filesystem::file_size(ObjectRecord::path_in(directory())), 4096U);
    // What records begins anew.
    begin();
    ASSERT_TRUE(online->put(put("other", "content")));
    offline([&](SyncStore& recorded) { EXPECT_EQ(names(recorded, below("")), std::vector<std::string>{"other"}); });
}

TEST_F(RecordedObjects, WhatBeginsAnewIsFollowed) {
    ASSERT_TRUE(online->put(put("before", "content")));
    timer.run(ObjectRecorder::kWritesAfter);
    ASSERT_TRUE(eventually([&] {
        const auto record = ObjectRecord::open_to_read(directory(), kBucket);
        const auto found = record ? (*record)->find("before") : failure(record.error());
        return found && found->has_value();
    }));
    // By another mount, which has found it damaged.
    ObjectRecorder other({directory(), kBucket, 1 << 30}, clock, timer);
    other.gone("nothing", {clock.now(), true});
    EXPECT_TRUE(other.stop(std::chrono::seconds(30)));
    ASSERT_TRUE(ObjectRecord::remove(directory()));
    ASSERT_TRUE(online->put(put("after", "content")));
    offline([&](SyncStore& store) { EXPECT_EQ(names(store, below("")), std::vector<std::string>{"after"}); });
}

// Another mount begins a new record meanwhile.
TEST_F(RecordedObjects, WhatChangesWhileTheDiskIsLeftAloneIsNotShownAsItWas) {
    const std::string path = ObjectRecord::path_in(directory());
    std::filesystem::create_symlink(directory() + "/nowhere/database", path);
    ASSERT_TRUE(online->put(put("nothing", "content")));
    timer.run(ObjectRecorder::kWritesAfter);
    ASSERT_TRUE(eventually([&] { return !std::filesystem::is_symlink(path); })) << "the disk has not failed";
    bucket_.put_object("file", "one");
    {
        const auto other = ObjectRecord::open(directory(), kBucket).value();
        ASSERT_TRUE(other->there({bucket_.info("file"), true, "one"}, clock.wall_now()));
    }
    ASSERT_TRUE(online->put(put("file", "another")));
    timer.run(ObjectRecorder::kWritesAfter);
    clock.move(ObjectRecorder::kLeftAlone);
    ASSERT_TRUE(online->put(put("marker", "content")));
    offline([&](SyncStore& store) {
        const std::vector<std::string> shown = names(store, below(""));
        EXPECT_EQ(std::count(shown.begin(), shown.end(), "file"), 0);
    });
}

TEST_F(RecordedObjects, ADatabaseThatAnotherWritesToIsWaitedFor) {
    auto other = ObjectRecord::open(directory(), kBucket).value();
    ASSERT_TRUE(other->begin());
    ASSERT_TRUE(online->put(put("one", "content")));
    timer.run(ObjectRecorder::kWritesAfter);
    // As long as a write waits.
    const auto begun = std::chrono::steady_clock::now();
    ASSERT_TRUE(
        eventually([&] { return std::chrono::steady_clock::now() > begun + std::chrono::milliseconds(2'500); }));
    other->give_up();
    ASSERT_TRUE(online->put(put("two", "content")));
    offline([&](SyncStore& store) { EXPECT_EQ(names(store, below("")), (std::vector<std::string>{"one", "two"})); });
}

// An hour may pass before the next change, and a kill before that.
TEST_F(RecordedObjects, WhatADatabaseWasTooBusyForIsWrittenWithoutAnotherChange) {
    auto other = ObjectRecord::open(directory(), kBucket).value();
    ASSERT_TRUE(other->begin());
    ASSERT_TRUE(online->put(put("one", "content")));
    timer.run(ObjectRecorder::kWritesAfter);
    // It is tried again, and waits for as long once more.
    ASSERT_TRUE(eventually([&] { return timer.waiting(ObjectRecorder::kWritesAfter) > 0; }));
    other->give_up();
    timer.run(ObjectRecorder::kWritesAfter);
    const auto record = ObjectRecord::open(directory(), kBucket).value();
    EXPECT_TRUE(eventually([&] { return record->find("one").value().has_value(); }));
}

// Each writes what it has seen a while later. What the one that writes last was told before the other's changes, or
// changed before them, is no news.
TEST_F(RecordedObjects, WhatAnotherProcessHasChangedSinceIsLeftAsItRecordedIt) {
    for (const char* key : {"p/read", "p/described", "p/listed", "p/removed", "p/mine"}) {
        bucket_.put_object(key, "1");
    }
    HandTimer its_timer;
    ObjectRecorder its_recorder({directory(), kBucket, 1 << 30}, clock, its_timer);
    RecordingStore its_recording(bucket_, its_recorder, ".ckptfs/");
    SyncStore its(its_recording);
    EXPECT_EQ(read(*online, "p/read"), "1");
    EXPECT_TRUE(online->head("p/described"));
    EXPECT_EQ(names(*online, below("p/", "/")).size(), 5U);
    EXPECT_TRUE(online->put(put("p/mine", "2")));
    clock.move(Milliseconds(1));
    for (const char* key : {"p/read", "p/described", "p/listed", "p/new", "p/mine"}) {
        EXPECT_TRUE(its.put(put(key, "3")));
    }
    EXPECT_TRUE(its.copy({"p/new", "p/copied", "", false, std::nullopt, nullptr}));
    EXPECT_TRUE(its.remove("p/removed"));
    EXPECT_TRUE(its_recorder.stop(std::chrono::seconds(30)));
    offline([](SyncStore& recorded) {
        const std::vector<std::string> all{"p/copied", "p/described", "p/listed", "p/mine", "p/new", "p/read"};
        EXPECT_EQ(names(recorded, below("p/", "/")), all);
        for (const std::string& key : all) {
            EXPECT_EQ(read(recorded, key), "3") << key;
        }
    });
    // What is asked for afterwards is.
    clock.move(Milliseconds(1));
    bucket_.put_object("p/read", "4");
    EXPECT_EQ(read(*online, "p/read"), "4");
    ASSERT_TRUE(SyncStore(bucket_).remove("p/listed"));
    EXPECT_EQ(names(*online, below("p/", "/")).size(), 5U);
    offline([](SyncStore& recorded) {
        EXPECT_EQ(names(recorded, below("p/", "/")).size(), 5U);
        EXPECT_EQ(read(recorded, "p/read"), "4");
    });
}

TEST(SharedChanges, AreRememberedForAMinuteAndNotOverARestartOfTheMachine) {
    const TemporaryDirectory directory;
    const auto database =
        sqlite::Database::open((directory.path() / "changes").string(), sqlite::Database::Access::kWrite);
    ASSERT_TRUE(database);
    auto shared = SharedChanges::open(*database);
    ASSERT_TRUE(shared);
    const SteadyTime now{std::chrono::hours(1)};
    const SteadyTime before = now - SharedChanges::kRemembered;
    ASSERT_TRUE(shared->note("old", before - Milliseconds(1)));
    ASSERT_TRUE(shared->note("kept", before + Milliseconds(1)));
    ASSERT_TRUE(shared->note("kept", before));
    ASSERT_TRUE(shared->note("while this one waits", now + SharedChanges::kWaits));
    ASSERT_TRUE(shared->note("of an earlier boot", now + SharedChanges::kWaits + Milliseconds(1)));
    ASSERT_TRUE(shared->forget_before(now));
    EXPECT_EQ(shared->changed("", "z", SteadyTime{}).value(), (std::set<std::string>{"kept", "while this one waits"}));
    EXPECT_TRUE(shared->has_changed("kept", before).value());
    EXPECT_FALSE(shared->has_changed("kept", before + Milliseconds(1)).value());
    EXPECT_FALSE(shared->has_changed("old", SteadyTime{}).value());
    EXPECT_EQ(shared->changed("kept", "kept", SteadyTime{}).value().size(), 0U);
}

TEST_F(RecordedObjects, BytesThatCameDamagedAreReplaced) {
    bucket_.put_object("file", "content");
    const ObjectInfo info = bucket_.info("file");
    recorder->there({info, true, "cXntent"}, {clock.now(), false});
    EXPECT_EQ(read(*online, "file").value(), "content");
    offline([&](SyncStore& store) { EXPECT_EQ(read(store, "file").value(), "content"); });
}

// A page that was asked for before another client's file was read does not take that away.
TEST_F(RecordedObjects, AListingThatWasOvertakenByAReadKeepsIt) {
    ASSERT_TRUE(online->put(put("seen", "content")));
    bucket_.hold_answers(Operation::kList);
    recording->list(below(""), [](const Result<ListResponse>&) {});
    bucket_.put_object("new", "content");
    EXPECT_EQ(read(*online, "new").value(), "content");
    bucket_.release(Operation::kList);
    offline([&](SyncStore& store) { EXPECT_EQ(names(store, below("")), (std::vector<std::string>{"new", "seen"})); });
}

TEST_F(RecordedObjects, AListingIsLookedAtAgainOnceRowsHaveGone) {
    bucket_.put_object("listed", "content");
    SyncStore there(bucket_);
    const ListResponse page = there.list(below("")).value();
    const auto record = ObjectRecord::open(directory(), kBucket).value();
    ASSERT_TRUE(record->listed(below(""), page, {}, clock.wall_now()));
    ASSERT_TRUE(record->trim(0));
    EXPECT_TRUE(record->list(below("")).value().objects.empty());
    ASSERT_TRUE(record->listed(below(""), page, {}, clock.wall_now()));
    EXPECT_EQ(record->list(below("")).value().objects.size(), 1U);
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
    changes.note("b");
    EXPECT_EQ(changes.changed_since(before), (std::set<std::string>{"a", "b"}));
    EXPECT_EQ(changes.changed_since(after), std::set<std::string>{"b"});
    for (std::size_t number = 0; number < RecentChanges::kMost; ++number) {
        changes.note("other " + std::to_string(number));
    }
    EXPECT_TRUE(changes.has_changed("a", before));
    EXPECT_TRUE(changes.has_changed("b", before));
    EXPECT_EQ(changes.changed_since(before), std::nullopt);
    EXPECT_FALSE(changes.has_changed("a", changes.now()));
    EXPECT_EQ(changes.changed_since(changes.now()), std::set<std::string>());
}

}  // namespace
}  // namespace ckptfs
