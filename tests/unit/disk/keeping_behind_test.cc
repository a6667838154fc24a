// SPDX-License-Identifier: Apache-2.0
// What was written is kept once the disk has time.
#include "read/keeping_behind.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "disk/disk_cache.h"
#include "read/reading.h"
#include "support/eventually.h"
#include "support/hand_timer.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {
namespace {

class KeepingBehindTest : public ::testing::Test {
protected:
    static constexpr std::size_t kSize = 40 * kMiB + 12345;

    // With its ETag.
    ObjectInfo put(const std::string& key) {
        ++seed;
        reading.store.put_object(key, content_of(kSize, seed), {{kWriteIdMetadata, "id " + std::to_string(seed)}});
        std::promise<ObjectInfo> found;
        reading.store.head(key, [&](const Result<ObjectInfo>& object) { found.set_value(object.value()); });
        return found.get_future().get();
    }
    std::weak_ptr<const void> acknowledged(const ObjectInfo& object) {
        const auto body = std::make_shared<const int>(0);
        keeping->acknowledged(object.key, object.etag, kSize, body);
        return body;
    }
    void is_quiet() {
        quiet = KeepingBehind::kQuiet;
        timer.run(KeepingBehind::kQuiet);
    }
    // On a thread of the disk.
    [[nodiscard]] static bool goes(const std::weak_ptr<const void>& body) {
        return eventually([&] { return body.expired(); });
    }
    [[nodiscard]] bool comes_to_rest() const {
        return eventually([&] { return keeping->waiting() == 0; });
    }
    // By the next mount.
    [[nodiscard]] bool is_whole(const ObjectInfo& object) const {
        EXPECT_TRUE(files->stop());
        const auto next = DiskCache::create({directory(), 1 << 30, "s"}, clock_of_next, timer_of_next).value();
        std::promise<std::optional<std::uint64_t>> size;
        next->whole_size(object, false, [&](std::optional<std::uint64_t> whole) { size.set_value(whole); });
        return size.get_future().get() == kSize;
    }
    [[nodiscard]] std::string directory() const { return (temporary.path() / "cache").string(); }

    TemporaryDirectory temporary;
    ManualClock clock;
    HandTimer timer;
    mutable ManualClock clock_of_next;
    mutable HandTimer timer_of_next;
    std::unique_ptr<DiskCache> files = DiskCache::create({directory(), 1 << 30, "s"}, clock, timer).value();
    Reading reading{*files};
    std::uint32_t seed = 0;
    std::atomic<Milliseconds> quiet{Milliseconds(0)};
    // Looks at the disk until it is busy again; none where it is not.
    std::atomic<int> looks{-1};
    std::unique_ptr<KeepingBehind> keeping = make(kSize * 4);

    std::unique_ptr<KeepingBehind> make(std::uint64_t limit) {
        return std::make_unique<KeepingBehind>(KeepingBehind::Environment{reading.environment, timer, limit, [this] {
                                                                              if (looks >= 0 && looks-- == 0) {
                                                                                  quiet = Milliseconds(0);
                                                                              }
                                                                              return quiet.load();
                                                                          }});
    }
};

TEST_F(KeepingBehindTest, WaitsUntilTheDiskIsQuiet) {
    const ObjectInfo object = put("k");
    const auto body = acknowledged(object);
    EXPECT_EQ(timer.waiting(KeepingBehind::kQuiet), 1U);
    EXPECT_EQ(keeping->waiting(), 1U);
    EXPECT_EQ(files->statistics().bytes_written, 0U);
    EXPECT_FALSE(body.expired());
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(goes(body));
    EXPECT_EQ(files->statistics().bytes_written, kSize);
    EXPECT_EQ(files->statistics().frames_left_out, 0U);
    EXPECT_TRUE(is_whole(object));
}

TEST_F(KeepingBehindTest, WaitsAgainWhenAFileIsWritten) {
    const ObjectInfo object = put("k");
    acknowledged(object);
    looks = 3;
    is_quiet();
    ASSERT_TRUE(eventually([&] { return timer.waiting(KeepingBehind::kQuiet) == 1; }));
    EXPECT_EQ(keeping->waiting(), 1U);
    EXPECT_LT(files->statistics().bytes_written, kSize);
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(is_whole(object));
}

TEST_F(KeepingBehindTest, AtTheEndOfTheMountItDoesNotWait) {
    const ObjectInfo object = put("k");
    acknowledged(object);
    std::promise<void> finished;
    keeping->finish([&] { finished.set_value(); });
    // The one that waits already.
    timer.run(KeepingBehind::kQuiet);
    finished.get_future().get();
    EXPECT_EQ(keeping->waiting(), 0U);
    EXPECT_TRUE(is_whole(object));
}

TEST_F(KeepingBehindTest, WhatIsStoppedIsNotWaitedFor) {
    const auto body = acknowledged(put("k"));
    std::promise<void> finished;
    keeping->finish([&] { finished.set_value(); });
    keeping->stop();
    finished.get_future().get();
    EXPECT_TRUE(goes(body));
    std::promise<void> at_once;
    keeping->finish([&] { at_once.set_value(); });
    at_once.get_future().get();
    EXPECT_TRUE(goes(acknowledged(put("l"))));
}

TEST_F(KeepingBehindTest, WhatWasReplacedOrRemovedIsLeftOut) {
    const auto first = acknowledged(put("k"));
    const ObjectInfo second = put("k");
    const auto body_of_second = acknowledged(second);
    const auto removed = acknowledged(put("l"));
    EXPECT_TRUE(goes(first));
    keeping->removed("l");
    EXPECT_TRUE(goes(removed));
    keeping->removed("unknown");
    EXPECT_FALSE(body_of_second.expired());
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_EQ(files->statistics().bytes_written, kSize);
    EXPECT_TRUE(is_whole(second));
}

TEST_F(KeepingBehindTest, WhatIsBeingReadIsLeftOutToo) {
    const ObjectInfo object = put("k");
    const auto body = acknowledged(object);
    looks = 3;
    is_quiet();
    ASSERT_TRUE(eventually([&] { return timer.waiting(KeepingBehind::kQuiet) == 1; }));
    keeping->removed("k");
    EXPECT_TRUE(goes(body));
    is_quiet();
    const ObjectInfo next = put("l");
    acknowledged(next);
    ASSERT_TRUE(comes_to_rest());
    EXPECT_FALSE(is_whole(object));
    EXPECT_TRUE(is_whole(next));
}

TEST_F(KeepingBehindTest, ACopyKeepsTheVersion) {
    const ObjectInfo object = put("tmp");
    const auto body = acknowledged(object);
    keeping->acknowledged("k", object.etag, 0, nullptr);
    keeping->acknowledged("k", object.etag, 0, nullptr);
    keeping->removed("tmp");
    EXPECT_FALSE(body.expired());
    EXPECT_EQ(keeping->waiting(), 1U);
    keeping->removed("k");
    EXPECT_TRUE(goes(body));
    // And of one that is not here nothing can be kept.
    keeping->acknowledged("k", object.etag, 0, nullptr);
    EXPECT_EQ(keeping->waiting(), 0U);
}

// Once some of it is kept, or before.
class ARename : public KeepingBehindTest, public ::testing::WithParamInterface<bool> {
protected:
    // Of which some is kept, or nothing.
    ObjectInfo begun() {
        const ObjectInfo object = put("k");
        acknowledged(object);
        if (GetParam()) {
            looks = 3;
            is_quiet();
            EXPECT_TRUE(eventually([&] { return timer.waiting(KeepingBehind::kQuiet) == 1; }));
            EXPECT_GT(files->statistics().bytes_written, 0U);
        }
        return object;
    }
    static ObjectInfo named(ObjectInfo object, const std::string& key, const std::string& etag) {
        object.key = key;
        object.etag = etag;
        return object;
    }
    static std::vector<RenamedObject> rename(const ObjectInfo& object, const std::string& etag) {
        return {{object.etag, object.size, object.metadata.at(kWriteIdMetadata), etag, ""}};
    }
};

TEST_P(ARename, OfWhatIsSentTakesTheRestAlong) {
    const ObjectInfo object = begun();
    files->sent(object, "\"sent\"");
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(is_whole(named(object, "k", "\"sent\"")));
}

TEST_P(ARename, OfADirectoryTakesTheRestAlong) {
    const ObjectInfo object = begun();
    files->sent(object, "\"sent\"");
    keeping->renamed(rename(object, "\"renamed\""));
    keeping->renamed(rename(named(object, "b/k", "\"renamed\""), "\"renamed again\""));
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(is_whole(named(object, "c/k", "\"renamed again\"")));
}

TEST_P(ARename, LeavesItsNameToTheNextCheckpoint) {
    const ObjectInfo object = begun();
    keeping->renamed(rename(object, "\"renamed\""));
    acknowledged(put("k"));
    EXPECT_EQ(keeping->waiting(), 2U);
    keeping->removed("k");
    EXPECT_EQ(keeping->waiting(), 1U);
}

TEST_P(ARename, OfALargeFileTakesTheRestAlong) {
    const ObjectInfo object = begun();
    const ObjectInfo copy = named(object, "l", "\"of an upload\"");
    keeping->acknowledged(copy.key, copy.etag, 0, nullptr);
    keeping->renamed(object, copy);
    keeping->removed("k");
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(is_whole(copy));
}

INSTANTIATE_TEST_SUITE_P(Begun, ARename, ::testing::Bool());

TEST_F(KeepingBehindTest, TheOldestAreLeftOutWhereTheyTakeTooMuch) {
    keeping = make(kSize * 2);
    const auto first = acknowledged(put("1"));
    const auto second = acknowledged(put("2"));
    EXPECT_FALSE(first.expired());
    const auto third = acknowledged(put("3"));
    EXPECT_TRUE(goes(first));
    EXPECT_FALSE(second.expired());
    EXPECT_EQ(keeping->waiting(), 2U);
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_EQ(files->statistics().bytes_written, 2 * kSize);
}

TEST_F(KeepingBehindTest, TheOldestAreLeftOutWhereTheyAreTooMany) {
    keeping = make(kSize);
    const auto name = [](std::size_t number) { return "k" + std::to_string(number); };
    for (std::size_t each = 0; each <= KeepingBehind::kMostWaiting; ++each) {
        keeping->acknowledged(name(each), name(each), 1, std::make_shared<const int>(0));
    }
    EXPECT_EQ(keeping->waiting(), KeepingBehind::kMostWaiting);
    keeping->removed(name(0));
    EXPECT_EQ(keeping->waiting(), KeepingBehind::kMostWaiting);
    keeping->removed(name(1));
    EXPECT_EQ(keeping->waiting(), KeepingBehind::kMostWaiting - 1);
}

TEST_F(KeepingBehindTest, AFullDiskIsGivenTheRoomOfTheOldestAtOnce) {
    const auto first = acknowledged(put("1"));
    const auto second = acknowledged(put("2"));
    EXPECT_TRUE(keeping->make_room());
    EXPECT_TRUE(first.expired());
    EXPECT_FALSE(second.expired());
    EXPECT_TRUE(keeping->make_room());
    EXPECT_TRUE(second.expired());
    EXPECT_FALSE(keeping->make_room());
}

TEST_F(KeepingBehindTest, AFullDiskIsGivenTheRoomOfWhatWaitsToBeRemoved) {
    std::promise<void> disk;
    files->when_written([&] { disk.get_future().wait(); });
    const ObjectInfo object = put("1");
    const auto body = acknowledged(object);
    keeping->removed(object.key);
    EXPECT_FALSE(body.expired());
    EXPECT_TRUE(keeping->make_room());
    EXPECT_TRUE(body.expired());
    EXPECT_FALSE(keeping->make_room());
    disk.set_value();
}

// It removes a file, which takes as long as the disk does.
TEST_F(KeepingBehindTest, NobodyWaitsForABodyThatGoes) {
    std::promise<std::thread::id> gone;
    keeping->acknowledged("k", "\"e\"", kSize, std::shared_ptr<const int>(new const int(0), [&](const int* body) {
                              gone.set_value(std::this_thread::get_id());
                              delete body;
                          }));
    keeping->stop();
    EXPECT_NE(gone.get_future().get(), std::this_thread::get_id());
}

TEST_F(KeepingBehindTest, OneThatCannotBeReadHoldsUpNoOther) {
    const ObjectInfo gone = put("gone");
    acknowledged(gone);
    const ObjectInfo object = put("k");
    acknowledged(object);
    reading.store.put_object("gone", "another version", {});
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_TRUE(is_whole(object));
}

TEST_F(KeepingBehindTest, WhatIsKeptAlreadyIsNotReadAgain) {
    const ObjectInfo object = put("k");
    acknowledged(object);
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    const std::uint64_t written = files->statistics().bytes_written;
    reading.store.forget_ranges();
    acknowledged(object);
    is_quiet();
    ASSERT_TRUE(comes_to_rest());
    EXPECT_EQ(files->statistics().bytes_written, written);
    EXPECT_EQ(files->statistics().bytes_read, 0U);
    EXPECT_LE(reading.store.ranges().size(), 1U);
}

}  // namespace
}  // namespace ckptfs::testing
