// SPDX-License-Identifier: Apache-2.0
// Files that the kernel may read itself: checked as a whole, and not changed since.
#include "disk/checked_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/text_file.h"
#include "disk/disk_space.h"
#include "disk_cache_fixture.h"
#include "support/eventually.h"

namespace ckptfs {
namespace {

class CheckedFilesTest : public DiskCacheTest {
protected:
    // Its bytes; empty where it is not to be had.
    static std::string checked(KeptFile& file) {
        std::promise<std::string> answered;
        file.open_checked([&](int descriptor) {
            std::string bytes;
            if (descriptor >= 0) {
                bytes.resize(static_cast<std::size_t>(lseek(descriptor, 0, SEEK_END)));
                EXPECT_EQ(pread(descriptor, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
            }
            answered.set_value(std::move(bytes));
        });
        return answered.get_future().get();
    }
    static bool is_checked(KeptFile& file) {
        return eventually([&] { return !checked(file).empty(); });
    }
    std::unique_ptr<DiskCache> make_checking() {
        auto cache = make_cache();
        cache->begin_checks();
        return cache;
    }
    static std::string all(char fill, std::size_t size) {
        std::string bytes(size, fill);
        return bytes;
    }
};

TEST_F(CheckedFilesTest, AreThoseOfWhichEveryFrameIsThere) {
    const auto cache = make_checking();
    const auto file = cache->file(object("k"), false, kFrameSize + 10);
    file->keep(0, frame_of('a'));
    ASSERT_TRUE(eventually([&] { return has(*file, 0, 'a'); }));
    EXPECT_EQ(checked(*file), "");
    file->keep(1, frame_of('a', 10));
    EXPECT_TRUE(is_checked(*file));
    EXPECT_EQ(checked(*file), all('a', kFrameSize + 10));
    // Not by programs.
    EXPECT_EQ(cache->statistics().bytes_read, kFrameSize);
}

TEST_F(CheckedFilesTest, AreNoneUntilSomeoneWantsThem) {
    const auto cache = make_cache();
    const auto file = keep(*cache, "k", 2);
    ASSERT_TRUE(eventually([&] { return has(*file, 1, 'x'); }));
    EXPECT_EQ(checked(*file), "");
    EXPECT_TRUE(cache->stop());
    EXPECT_EQ(checked(*file), "");
}

TEST_F(CheckedFilesTest, AreCheckedAgainByTheNextMount) {
    keep(*make_checking(), "k", 3);
    const auto cache = make_checking();
    const auto file = cache->file(object("k"), false, 3 * kFrameSize);
    EXPECT_TRUE(is_checked(*file));
    EXPECT_EQ(cache->statistics().frames_damaged, 0U);
}

TEST_F(CheckedFilesTest, AreNotThoseThatWereDamagedBetweenMounts) {
    keep(*make_checking(), "k", 3);
    flip_a_bit(".data", 2 * kFrameSize + 7);
    const auto cache = make_checking();
    const auto file = cache->file(object("k"), false, 3 * kFrameSize);
    ASSERT_TRUE(eventually([&] { return cache->statistics().frames_damaged == 1; }));
    EXPECT_EQ(checked(*file), "");
    file->keep(2, frame_of('x'));
    EXPECT_TRUE(is_checked(*file));
}

TEST_F(CheckedFilesTest, AreNotThoseThatWereChangedSince) {
    const auto cache = make_checking();
    const auto file = keep(*cache, "k", 3);
    ASSERT_TRUE(is_checked(*file));
    flip_a_bit(".data", 2 * kFrameSize + 7);
    EXPECT_EQ(checked(*file), "");
    ASSERT_TRUE(eventually([&] { return checked(*file).empty() && cache->statistics().frames_damaged == 1; }));
    EXPECT_EQ(checked(*file), "");
}

TEST_F(CheckedFilesTest, AreNotThoseOfAnotherFileByTheSameName) {
    const auto cache = make_checking();
    ASSERT_TRUE(is_checked(*keep(*cache, "k", 1)));
    for (const auto& path : files()) {
        if (path.extension() == ".data") {
            std::filesystem::copy_file(path, path.string() + ".copy");
            std::filesystem::rename(path.string() + ".copy", path);
        }
    }
    EXPECT_EQ(checked(*cache->file(object("k"), false, kFrameSize)), "");
}

TEST_F(CheckedFilesTest, KeepThatWhenTheyAreRenamed) {
    const auto cache = make_checking();
    ASSERT_TRUE(is_checked(*keep(*cache, "k", 2)));
    ObjectInfo copy = object("k", "\"copy\"");
    copy.metadata = object("k").metadata;
    cache->renamed(object("k"), copy);
    const auto file = cache->file(copy, false, 2 * kFrameSize);
    ASSERT_TRUE(eventually([&] { return cache->may_have("\"copy\""); }));
    EXPECT_TRUE(is_checked(*file));
}

// What is checked is what was used last, and goes last.
TEST_F(CheckedFilesTest, AreNotTakenForUsed) {
    {
        const auto cache = make_cache();
        keep(*cache, "earlier", 1);
        keep(*cache, "later", 1);
        ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 2 * kFrameSize; }));
    }
    const std::vector<KeptOnDisk> kept = list_kept(directory());
    ASSERT_EQ(kept.size(), 2U);
    const std::string later = kept[0].used > kept[1].used ? kept[0].name : kept[1].name;
    for (const KeptOnDisk& each : kept) {
        const timespec used{each.name == later ? 2000 : 1000, 0};
        const std::array<timespec, 2> times{used, used};
        ASSERT_EQ(utimensat(AT_FDCWD, index_path(directory(), each.name).c_str(), times.data(), 0), 0);
    }
    const auto cache = make_checking();
    // Behind the other.
    ASSERT_TRUE(is_checked(*cache->file(object("earlier"), false, kFrameSize)));
    for (const KeptOnDisk& each : list_kept(directory())) {
        EXPECT_EQ(std::chrono::system_clock::to_time_t(each.used) == 2000, each.name == later);
    }
}

TEST_F(CheckedFilesTest, CanBeDroppedWhileTheyAreChecked) {
    constexpr int kFrames = 256;
    {
        const auto cache = make_cache(1 << 30, kFrames);
        keep(*cache, "k", kFrames);
        ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == kFrames * kFrameSize; }));
    }
    const std::string index = index_path(directory(), list_kept(directory()).front().name);
    const auto cache = make_checking();
    struct stat file {};
    ASSERT_EQ(stat(index.c_str(), &file), 0);
    // To try to lock it would keep the check out.
    ASSERT_TRUE(eventually([&] {
        const auto locks = read_text_file(AT_FDCWD, "/proc/locks");
        return locks && locks->find(format(":{} ", file.st_ino)) != std::string::npos;
    })) << "it is held while it is checked";
    std::promise<bool> answered;
    cache->drop(object("k"), [&](bool is_dropped) { answered.set_value(is_dropped); });
    EXPECT_TRUE(answered.get_future().get());
    EXPECT_TRUE(files().empty());
}

// A check of what was just written shares its files with those that wrote them.
TEST_F(CheckedFilesTest, CanBeDroppedWhileTheyAreCheckedAsTheyBecomeWhole) {
    const auto cache = make_checking();
    for (std::uint64_t round = 1; round <= 20; ++round) {
        const auto file = keep(*cache, "k", 16);
        ASSERT_TRUE(eventually([&] { return cache->statistics().bytes_written == 16 * round * kFrameSize; }));
        std::promise<bool> answered;
        cache->drop(object("k"), [&](bool is_dropped) { answered.set_value(is_dropped); });
        EXPECT_TRUE(answered.get_future().get());
    }
}

TEST(CheckedFiles, TheFirstOfTooManyGo) {
    CheckedFiles checked;
    for (std::size_t i = 0; i <= CheckedFiles::kMost; ++i) {
        checked.note(std::to_string(i), DataState{i, 1, 1});
    }
    EXPECT_FALSE(checked.find("0"));
    EXPECT_EQ(checked.find("1"), (DataState{1, 1, 1}));
    checked.forget("1");
    EXPECT_FALSE(checked.find("1"));
    checked.note("2", DataState{9, 9, 9});
    EXPECT_EQ(checked.find("2"), (DataState{9, 9, 9}));
}

}  // namespace
}  // namespace ckptfs
