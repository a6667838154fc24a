// SPDX-License-Identifier: Apache-2.0
#include "disk/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/codec.h"
#include "disk/disk_space.h"
#include "disk_cache_fixture.h"
#include "support/eventually.h"

namespace ckptfs {
namespace {

TEST_F(DiskCacheTest, WhatIsKeptIsThereForTheNextMount) {
    {
        const auto cache = make_cache();
        const auto file = cache->file(object("k"), false, kFrameSize + 10);
        EXPECT_TRUE(file->may_have(0));
        EXPECT_FALSE(has(*file, 0, 'a'));
        file->keep(0, frame_of('a'));
        file->keep(1, frame_of('b', 10));
        EXPECT_TRUE(cache->stop());
        EXPECT_TRUE(has(*file, 0, 'a'));
    }
    const auto cache = make_cache();
    const auto file = cache->file(object("k"), false, kFrameSize + 10);
    const auto held = file->hold();
    EXPECT_TRUE(has(*file, 0, 'a'));
    EXPECT_TRUE(has(*file, 1, 'b', 10));
    EXPECT_FALSE(file->may_have(2));
    EXPECT_EQ(cache->statistics().bytes_read, kFrameSize + 10);
    EXPECT_EQ(cache->statistics().frames_damaged, 0U);
}

TEST_F(DiskCacheTest, AFileIsKnownToBeWholeOnceAllOfItIsKept) {
    {
        const auto cache = make_cache();
        EXPECT_FALSE(cache->may_have("\"k\""));
        const auto file = cache->file(object("k"), true, 2 * kFrameSize + 1);
        file->keep(0, frame_of('x'));
        file->keep(2, frame_of('x', 1));
        ASSERT_TRUE(eventually([&] { return cache->may_have("\"k\""); }));
        EXPECT_FALSE(whole_size(*cache, object("k"), true));
        file->keep(1, frame_of('x'));
        EXPECT_TRUE(cache->stop());
        EXPECT_EQ(whole_size(*cache, object("k"), true), 2 * kFrameSize + 1);
        EXPECT_FALSE(whole_size(*cache, object("k"), false));
        EXPECT_FALSE(whole_size(*cache, object("k", "\"f\""), true));
    }
    const auto cache = make_cache();
    ASSERT_TRUE(eventually([&] { return cache->may_have("\"k\""); }));
    EXPECT_EQ(whole_size(*cache, object("k"), true), 2 * kFrameSize + 1);
    EXPECT_FALSE(cache->may_have("\"f\""));
}

TEST_F(DiskCacheTest, OnlyThisUserCanReadIt) {
    const auto cache = make_cache();
    keep(*cache, "k", 1);
    EXPECT_TRUE(cache->stop());
    struct stat status {};
    ASSERT_EQ(stat(directory().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    EXPECT_EQ(files().size(), 2U);
    for (const auto& path : files()) {
        ASSERT_EQ(stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777, 0600U);
    }
}

TEST_F(DiskCacheTest, ADirectoryThatOthersMayEnterIsRefused) {
    std::filesystem::create_directory(directory());
    std::filesystem::permissions(directory(), std::filesystem::perms::all);
    EXPECT_EQ(DiskCache::create({directory(), 1 << 30, "s"}, clock, timer).error().errno_value, EPERM);
}

TEST_F(DiskCacheTest, AnotherVersionFindsNothing) {
    const auto cache = make_cache();
    keep(*cache, "k", 1);
    EXPECT_TRUE(cache->stop());
    EXPECT_FALSE(has(*cache->file(object("k", "\"f\""), false, kFrameSize), 0, 'x'));
    EXPECT_FALSE(has(*cache->file(object("k"), true, kFrameSize), 0, 'x'));
    EXPECT_TRUE(has(*cache->file(object("k"), false, kFrameSize), 0, 'x'));
}

// A disk that others have filled would take room from what cannot come back.
TEST_F(DiskCacheTest, WithoutAStoreBehindItNothingIsWrittenAndNothingForgotten) {
    {
        const auto cache = make_cache();
        cache->file(object("k"), false, 2 * kFrameSize)->keep(0, frame_of('a'));
        EXPECT_TRUE(cache->stop());
    }
    DiskCacheConfig config{directory(), 1 << 30, "store/bucket"};
    config.is_alone = true;
    const auto cache = DiskCache::create(config, clock, timer).value();
    const auto file = cache->file(object("k"), false, 2 * kFrameSize);
    file->keep(1, frame_of('b'));
    EXPECT_TRUE(cache->stop());
    EXPECT_TRUE(has(*file, 0, 'a'));
    EXPECT_FALSE(has(*file, 1, 'b'));
}

TEST_F(DiskCacheTest, AFlippedBitIsFoundAndKeptAnew) {
    EXPECT_TRUE(make_cache()->stop());
    for (const auto& [ending, offset] : {std::pair{".data", std::streamoff{1000}},
                                         {".index", std::streamoff{kIndexHeaderSize + 3}},
                                         {".index", std::streamoff{20}}}) {
        SCOPED_TRACE(ending + std::to_string(offset));
        {
            const auto cache = make_cache();
            keep(*cache, "k", 1);
        }
        flip_a_bit(ending, offset);
        const auto cache = make_cache();
        const auto file = cache->file(object("k"), false, kFrameSize);
        // Else it is closed where room is made, and what it has is not known.
        const auto held = file->hold();
        EXPECT_FALSE(has(*file, 0, 'x'));
        EXPECT_FALSE(file->may_have(0));
        file->keep(0, frame_of('x'));
        EXPECT_TRUE(cache->stop());
        EXPECT_TRUE(has(*file, 0, 'x'));
    }
}

// A power cut may leave the index of what never reached the disk.
TEST_F(DiskCacheTest, ARecordWithoutItsBytesCountsForNothing) {
    {
        const auto cache = make_cache();
        keep(*cache, "k", 2);
    }
    for (const auto& path : files()) {
        if (path.extension() == ".data") {
            std::filesystem::resize_file(path, kFrameSize + 5);
            std::filesystem::resize_file(path, 2 * kFrameSize);
        }
    }
    {
        const auto cache = make_cache();
        const auto file = cache->file(object("k"), false, 2 * kFrameSize);
        const auto held = file->hold();
        EXPECT_TRUE(has(*file, 0, 'x'));
        EXPECT_FALSE(has(*file, 1, 'x'));
        EXPECT_EQ(cache->statistics().frames_damaged, 1U);
    }
    for (const auto& path : files()) {
        if (path.extension() == ".data") {
            std::filesystem::remove(path);
        }
    }
    const auto cache = make_cache();
    EXPECT_FALSE(has(*cache->file(object("k"), false, 2 * kFrameSize), 0, 'x'));
}

TEST_F(DiskCacheTest, WhatWasUsedLongestAgoGoesFirstAndNothingThatIsOpen) {
    const std::uint64_t room = 7 * kFrameSize;
    const auto cache = make_cache(room);
    keep(*cache, "first", 2);
    keep(*cache, "second", 2);
    keep(*cache, "later", 1);
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 5 * kFrameSize; }));
    // From the last use on.
    const auto now = std::filesystem::file_time_type::clock::now();
    const auto path_of = [&](const std::string& key) {
        return index_path(directory(), kept_version("store/bucket", object(key), false)->file_name());
    };
    std::filesystem::last_write_time(path_of("first"), now - std::chrono::hours(1));
    std::filesystem::last_write_time(path_of("second"), now - std::chrono::hours(2));
    std::filesystem::last_write_time(path_of("later"), now - std::chrono::hours(1));
    const auto open = cache->file(object("first"), false, 2 * kFrameSize);
    const auto held = open->hold();
    ASSERT_TRUE(has(*open, 0, 'x'));
    std::filesystem::last_write_time(path_of("first"), now - std::chrono::hours(3));
    keep(*cache, "third", 3);
    EXPECT_TRUE(cache->stop());
    EXPECT_TRUE(std::filesystem::exists(path_of("first")));
    EXPECT_FALSE(std::filesystem::exists(path_of("second")));
    EXPECT_TRUE(std::filesystem::exists(path_of("later")));
    EXPECT_LE(cache->statistics().bytes_held, room);
    EXPECT_EQ(cache->statistics().failure, "");
}

TEST_F(DiskCacheTest, TellsHowMuchIsKeptAndDropsIt) {
    const auto cache = make_cache();
    const auto bytes_kept = [&](const std::string& key) {
        std::promise<std::uint64_t> answered;
        cache->bytes_kept(object(key), [&](std::uint64_t bytes) { answered.set_value(bytes); });
        return answered.get_future().get();
    };
    const auto drop = [&](const std::string& key) {
        std::promise<bool> answered;
        cache->drop(object(key), [&](bool is_dropped) { answered.set_value(is_dropped); });
        return answered.get_future().get();
    };
    EXPECT_EQ(bytes_kept("k"), 0U);
    EXPECT_TRUE(drop("k"));
    const auto file = cache->file(object("k"), true, 3 * kFrameSize + 7);
    file->keep(1, frame_of('x'));
    file->keep(3, frame_of('x', 7));
    const auto other = keep(*cache, "other", 1);
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 2 * kFrameSize + 7; }));
    EXPECT_EQ(bytes_kept("k"), kFrameSize + 7);
    {
        const auto held = file->hold();
        EXPECT_FALSE(drop("k"));
    }
    EXPECT_EQ(bytes_kept("k"), kFrameSize + 7);
    EXPECT_TRUE(drop("k"));
    EXPECT_EQ(bytes_kept("k"), 0U);
    EXPECT_EQ(bytes_kept("other"), kFrameSize);
    EXPECT_EQ(files().size(), 2U);
    // It may be kept anew.
    file->keep(1, frame_of('y'));
    EXPECT_TRUE(eventually([&] { return bytes_kept("k") == kFrameSize; }));
    EXPECT_TRUE(has(*file, 1, 'y'));
}

TEST_F(DiskCacheTest, WhereAllIsOpenNoMoreIsKeptForAWhile) {
    const auto cache = make_cache(2 * kFrameSize);
    const auto file = cache->file(object("k"), false, 4 * kFrameSize);
    const auto held = file->hold();
    for (std::uint64_t frame = 0; frame < 4; ++frame) {
        file->keep(frame, frame_of('x'));
    }
    ASSERT_TRUE(eventually([&] { return !cache->statistics().failure.empty(); }));
    EXPECT_NE(cache->statistics().failure.find("No space left"), std::string::npos);
    const auto other = keep(*cache, "other", 1);
    EXPECT_FALSE(has(*other, 0, 'x'));
    // It is read all the same.
    EXPECT_TRUE(has(*file, 0, 'x'));
}

// Which is looked at after each 64th of the size, and after each pause at once.
TEST_F(DiskCacheTest, WhatIsInUseForLongMakesItNoLarger) {
    const auto cache = make_cache(64 * kFrameSize);
    const auto file = cache->file(object("k"), false, 90 * kFrameSize);
    const auto held = file->hold();
    std::uint64_t frame = 0;
    const auto keep_one = [&](const std::function<bool()>& or_else = [] { return false; }) {
        const std::uint64_t before = cache->statistics().bytes_written;
        file->keep(frame++, frame_of('x'));
        return eventually([&] { return cache->statistics().bytes_written > before || or_else(); });
    };
    while (cache->statistics().failure.empty() && frame < 80) {
        // It may be found to be full just now.
        ASSERT_TRUE(keep_one([&] { return !cache->statistics().failure.empty(); }));
        // Behind the look that may follow.
        EXPECT_EQ(whole_size(*cache, object("none"), false), std::nullopt);
    }
    ASSERT_TRUE(eventually([&] { return !cache->statistics().failure.empty(); }));
    for (int minute = 0; minute < 3; ++minute) {
        const std::uint64_t before = cache->statistics().bytes_written;
        clock.move(DiskCache::kLeftAlone);
        ASSERT_TRUE(keep_one());
        ASSERT_TRUE(eventually([&] { return !cache->statistics().failure.empty(); }));
        file->keep(frame++, frame_of('x'));
        std::promise<bool> dropped;
        cache->drop(object("none"), [&](bool is_dropped) { dropped.set_value(is_dropped); });
        ASSERT_TRUE(dropped.get_future().get());
        EXPECT_EQ(cache->statistics().bytes_written, before + kFrameSize) << minute;
    }
}

TEST_F(DiskCacheTest, WhatWasInUseUntilNowIsNotTheOldest) {
    const auto cache = make_cache(6 * kFrameSize);
    keep(*cache, "first", 2);
    keep(*cache, "second", 2);
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 4 * kFrameSize; }));
    const auto path_of = [&](const std::string& key) {
        return index_path(directory(), kept_version("store/bucket", object(key), false)->file_name());
    };
    const auto first = cache->file(object("first"), false, 2 * kFrameSize);
    {
        const auto held = first->hold();
        ASSERT_TRUE(has(*first, 0, 'x'));
        const auto now = std::filesystem::file_time_type::clock::now();
        std::filesystem::last_write_time(path_of("first"), now - std::chrono::hours(3));
        std::filesystem::last_write_time(path_of("second"), now - std::chrono::hours(1));
    }
    keep(*cache, "third", 3);
    EXPECT_TRUE(cache->stop());
    EXPECT_TRUE(std::filesystem::exists(path_of("first")));
    EXPECT_FALSE(std::filesystem::exists(path_of("second")));
}

TEST_F(DiskCacheTest, WhatAnotherMountHasUsedLaterWasUsedThen) {
    const auto cache = make_cache();
    const auto file = keep(*cache, "first", 1);
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == kFrameSize; }));
    ASSERT_TRUE(has(*file, 0, 'x'));
    const std::string path = index_path(directory(), kept_version("store/bucket", object("first"), false)->file_name());
    const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
    std::filesystem::last_write_time(path, later);
    EXPECT_TRUE(cache->stop());
    std::static_pointer_cast<KeptFileOnDisk>(file)->close();
    EXPECT_EQ(std::filesystem::last_write_time(path), later);
}

// The kernel may read it past the daemon.
TEST_F(DiskCacheTest, AFileInUseStaysSoWhenItIsRenamed) {
    const auto cache = make_cache();
    const auto file = keep(*cache, "first", 2);
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 2 * kFrameSize; }));
    ASSERT_TRUE(has(*file, 0, 'x'));
    auto held = file->hold();
    cache->renamed(object("first"), object("copy"));
    const std::string name = kept_version("store/bucket", object("copy"), false)->file_name();
    ASSERT_TRUE(eventually([&] {
        return !std::filesystem::exists(
            index_path(directory(), kept_version("store/bucket", object("first"), false)->file_name()));
    }));
    ASSERT_TRUE(std::filesystem::exists(index_path(directory(), name)));
    EXPECT_FALSE(remove_kept(directory(), name));
    EXPECT_TRUE(has(*file, 0, 'x'));
}

TEST_F(DiskCacheTest, OnlySoManyFilesAreOpenAtOnce) {
    const auto cache = make_cache();
    std::vector<std::shared_ptr<KeptFile>> kept;
    const auto descriptors = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return std::distance(begin(all), end(all));
    };
    const auto before = descriptors();
    for (std::size_t i = 0; i < DiskCache::kMostOpen + 20; ++i) {
        kept.push_back(cache->file(object("k", format("\"{}\"", i)), false, 10));
        kept.back()->keep(0, frame_of('x', 10));
        ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == (i + 1) * 10; }));
    }
    EXPECT_LE(descriptors() - before, 2 * static_cast<std::ptrdiff_t>(DiskCache::kMostOpen));
    EXPECT_TRUE(has(*kept.front(), 0, 'x', 10));
    EXPECT_TRUE(has(*kept.back(), 0, 'x', 10));
}

TEST_F(DiskCacheTest, FilesInUseStayHoweverManyAreOpen) {
    const auto cache = make_cache();
    std::vector<std::shared_ptr<KeptFile>> kept;
    std::vector<std::shared_ptr<void>> held;
    for (std::size_t i = 0; i < DiskCache::kMostOpen + 20; ++i) {
        kept.push_back(cache->file(object("k", format("\"{}\"", i)), false, 10));
        held.push_back(kept.back()->hold());
        kept.back()->keep(0, frame_of('x', 10));
        ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == (i + 1) * 10; }));
    }
    for (const KeptOnDisk& each : list_kept(directory())) {
        EXPECT_FALSE(remove_kept(directory(), each.name));
    }
}

TEST_F(DiskCacheTest, FilesOfOtherProgramsAreNotRemoved) {
    {
        const auto cache = make_cache();
        keep(*cache, "k", 1);
    }
    const std::string name = list_kept(directory()).front().name;
    for (const std::string& other :
         {std::string("model.ckpt-1000"), name + "0", name.substr(1), 'x' + name.substr(1)}) {
        std::ofstream(index_path(directory(), other)) << "of another program";
        std::ofstream(data_path(directory(), other)) << "of another program";
    }
    EXPECT_EQ(make_room(directory(), 0), 0U);
    EXPECT_EQ(list_kept(directory()).size(), 0U);
    EXPECT_EQ(files().size(), 8U);
}

TEST_F(DiskCacheTest, FramesThatTheDiskIsTooSlowForAreLeftOut) {
    const auto cache = make_cache(1 << 30, 0);
    const auto file = keep(*cache, "k", 3);
    EXPECT_EQ(cache->statistics().frames_left_out, 3U);
    EXPECT_FALSE(has(*file, 0, 'x'));
}

TEST_F(DiskCacheTest, WhatIsWrittenIsThereOnceItIsInTheBucket) {
    const auto cache = make_cache();
    const auto being_kept = cache->begin();
    for (std::uint64_t frame = 0; frame < 3; ++frame) {
        being_kept->add(frame, payload_of(frame_of('x')));
    }
    being_kept->add(3, payload_of(frame_of('x', 10)));
    being_kept->add(1, payload_of(frame_of('y')));
    being_kept->forget(2 * kFrameSize + 5, 2 * kFrameSize + 6);
    EXPECT_TRUE(files().empty());
    being_kept->finish(object("k"), false, 3 * kFrameSize + 10);
    EXPECT_TRUE(cache->stop());
    const auto file = cache->file(object("k"), false, 3 * kFrameSize + 10);
    EXPECT_TRUE(has(*file, 0, 'x'));
    EXPECT_TRUE(has(*file, 1, 'y'));
    EXPECT_FALSE(file->may_have(2));
    EXPECT_TRUE(has(*file, 3, 'x', 10));
    EXPECT_EQ(cache->statistics().frames_damaged, 0U);
    EXPECT_EQ(cache->statistics().failure, "");
}

// --ack disk: under the ETag of the acknowledgement until the mount ends, and under the bucket's afterwards.
TEST_F(DiskCacheTest, WhatIsSentLaterIsThereUnderBothEtags) {
    for (const bool is_sent_before : {false, true}) {
        const std::string key = is_sent_before ? "early" : "late";
        ObjectInfo in_bucket = object(key);
        in_bucket.etag = "\"of " + key + "\"";
        {
            const auto cache = make_cache();
            const auto being_kept = cache->begin();
            being_kept->add(0, payload_of(frame_of('x')));
            if (is_sent_before) {
                cache->sent(object(key), in_bucket.etag);
            }
            being_kept->finish(object(key), false, kFrameSize);
            // And a copy of it, which the store gives another one.
            cache->sent(object(key), "\"" + key + " of tmp\"");
            cache->sent(object(key), in_bucket.etag);
            EXPECT_TRUE(cache->stop());
            EXPECT_TRUE(cache->may_have(object(key).etag));
            EXPECT_TRUE(has(*cache->file(object(key), false, kFrameSize), 0, 'x')) << key;
        }
        const auto next = make_cache();
        EXPECT_TRUE(next->may_have(in_bucket.etag));
        const auto file = next->file(in_bucket, false, kFrameSize);
        const auto held = file->hold();
        EXPECT_TRUE(has(*file, 0, 'x')) << key;
        EXPECT_FALSE(has(*next->file(object(key), false, kFrameSize), 0, 'x')) << key;
    }
    EXPECT_EQ(files().size(), 4U);
}

TEST_F(DiskCacheTest, OfWhatWasNotPublishedNothingIsLeft) {
    const auto cache = make_cache();
    cache->begin()->add(0, payload_of(frame_of('x')));
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == kFrameSize; }));
    EXPECT_TRUE(cache->stop());
    EXPECT_TRUE(files().empty());
}

TEST_F(DiskCacheTest, WhatWasKeptBeforeStays) {
    const auto cache = make_cache();
    keep(*cache, "k", 1);
    ASSERT_TRUE(eventually([&] { return files().size() == 2; }));
    const auto being_kept = cache->begin();
    being_kept->add(0, payload_of(frame_of('y')));
    being_kept->finish(object("k"), false, kFrameSize);
    EXPECT_TRUE(cache->stop());
    EXPECT_TRUE(has(*cache->file(object("k"), false, kFrameSize), 0, 'x'));
    EXPECT_EQ(cache->statistics().frames_damaged, 0U);
}

TEST_F(DiskCacheTest, ADiskThatHangsIsNotWaitedFor) {
    const std::string index = index_path(directory(), kept_version("store/bucket", object("k"), false)->file_name());
    const auto cache = make_cache();
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory()); }));
    // To open it waits for one that writes.
    ASSERT_EQ(mkfifo(index.c_str(), S_IRUSR | S_IWUSR), 0);
    std::promise<std::optional<std::uint64_t>> size;
    cache->whole_size(object("k"), false, [&](std::optional<std::uint64_t> found) { size.set_value(found); });
    const Milliseconds limit = cache->config().answers_within;
    ASSERT_EQ(timer.waiting(limit), 1U);
    timer.run(limit);
    EXPECT_EQ(size.get_future().get(), std::nullopt);
    EXPECT_NE(cache->statistics().failure.find("does not answer"), std::string::npos);
    EXPECT_FALSE(cache->file(object("other"), false, kFrameSize)->may_have(0));
    clock.move(DiskCache::kLeftAlone);
    const FileDescriptor writer(::open(index.c_str(), O_RDWR | O_CLOEXEC));
    std::filesystem::remove(index);
    EXPECT_TRUE(eventually([&] { return cache->file(object("other"), false, kFrameSize)->may_have(0); }));
}

TEST_F(DiskCacheTest, ADirectoryThatIsTakenAwayIsLeftAlone) {
    const auto cache = make_cache();
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory()); }));
    cache->file(object("a"), false, kFrameSize)->keep(0, frame_of('x'));
    ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == kFrameSize; }));
    std::filesystem::remove_all(directory());
    const auto file = keep(*cache, "k", 1);
    ASSERT_TRUE(eventually([&] { return !cache->statistics().failure.empty(); }));
    EXPECT_FALSE(has(*file, 0, 'x'));
    std::filesystem::create_directory(directory());
    clock.move(DiskCache::kLeftAlone);
    EXPECT_EQ(cache->statistics().failure, "");
    EXPECT_TRUE(eventually([&] {
        file->keep(0, frame_of('x'));
        return has(*file, 0, 'x');
    }));
}

}  // namespace
}  // namespace ckptfs
