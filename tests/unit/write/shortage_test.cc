// SPDX-License-Identifier: Apache-2.0
// What writers do when memory is short: send early, go to the disk and come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/held_executor.h"
#include "support/sync_store.h"
#include "support/temporary_directory.h"
#include "support/unlinked_files.h"
#include "unit/write/writer_fixture.h"
#include "write/writer_group.h"

namespace ckptfs {
namespace {

using testing::kMiB;
using testing::Operation;
using testing::pattern;
using testing::WriterFixture;

// 63 buffers, of which file data may hold about 40.
constexpr std::uint64_t kSmallMemory = 64 * kMiB;

// Outlives the threads of the fixture, which post to it.
struct SlowDisk {
    testing::HeldExecutor slow;
};

class ShortageTest : public ::testing::Test, protected SlowDisk, protected WriterFixture {
protected:
    explicit ShortageTest(WriteConfig config = {}) : WriterFixture(kSmallMemory, std::move(config)) {}
    void TearDown() override {
        EXPECT_TRUE(all_buffers_returned());
        EXPECT_TRUE(no_upload_left());
    }

    static void relieve(FileWriter& writer, Relief relief) { dynamic_cast<MemoryHolder&>(writer).relieve(relief); }
    [[nodiscard]] bool holds_no_file_data() const {
        return testing::eventually(
            [this] { return pool->usage().in_use[static_cast<std::size_t>(MemoryUse::kWrite)] == 0; });
    }
    // Everything the writer holds for itself goes to the disk.
    void spill_all(FileWriter& writer) {
        ASSERT_TRUE(testing::eventually([&] { return writer.progress().parts_in_flight == 0; }));
        ASSERT_TRUE(testing::eventually([&] {
            relieve(writer, Relief::kSpillKept);
            relieve(writer, Relief::kSpillOpen);
            return pool->usage().in_use[static_cast<std::size_t>(MemoryUse::kWrite)] == 0;
        }));
    }
    // Writes a file of each size, a piece of each at a time.
    void write_round_robin(int files, std::uint64_t size, std::size_t piece) {
        std::vector<std::shared_ptr<FileWriter>> writers;
        std::vector<std::string> contents;
        for (int index = 0; index < files; ++index) {
            writers.push_back(open(std::nullopt, "file" + std::to_string(index)));
            contents.push_back(pattern(size, static_cast<std::uint64_t>(index) * 7919));
        }
        for (std::uint64_t offset = 0; offset < size; offset += piece) {
            for (std::size_t index = 0; index < writers.size(); ++index) {
                const Status status = write(*writers[index], offset, contents[index].substr(offset, piece));
                ASSERT_TRUE(status) << status.error().message;
            }
        }
        for (std::size_t index = 0; index < writers.size(); ++index) {
            const auto committed = commit(*writers[index]);
            ASSERT_TRUE(committed) << committed.error().message;
            EXPECT_TRUE(store.content("file" + std::to_string(index)) == contents[index]) << index;
        }
    }
};

TEST_F(ShortageTest, ManySlowFilesAllGetThrough) {
    write_round_robin(60, 6 * kMiB, kMiB);
}

TEST_F(ShortageTest, ManyFilesOfSmallWritesAllGetThrough) {
    write_round_robin(200, 300'000, 30'000);
    // Each fits into one request, staged or not.
    EXPECT_EQ(store.calls(Operation::kPut), 200);
}

TEST_F(ShortageTest, ManySlowFilesGetThroughASlowStore) {
    store.answer_from_threads(2);
    write_round_robin(50, 5 * kMiB + 12'345, 700'000);
}

TEST_F(ShortageTest, LargeFilesSideBySideGetThrough) {
    store.answer_from_threads(2);
    write_round_robin(6, 40 * kMiB, kMiB);
}

TEST_F(ShortageTest, ALargePartLeavesEarly) {
    const auto writer = open();
    const std::string content = pattern(13 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content.substr(0, 4 * kMiB)));
    relieve(*writer, Relief::kSendEarly);
    EXPECT_EQ(store.calls(), 0);
    ASSERT_TRUE(write(*writer, 4 * kMiB, content.substr(4 * kMiB, 2 * kMiB)));
    ASSERT_TRUE(testing::eventually([&] {
        relieve(*writer, Relief::kSendEarly);
        return store.calls(Operation::kUploadPart) == 1;
    }));
    ASSERT_TRUE(write(*writer, 6 * kMiB, content.substr(6 * kMiB)));
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(ShortageTest, ASpilledPartIsSentFromTheDisk) {
    for (const std::uint64_t size : {std::uint64_t{100}, 3 * kMiB, 4 * kMiB + 100}) {
        const std::string key = "spilled/" + std::to_string(size);
        const auto writer = open(std::nullopt, key);
        const std::string content = pattern(size + 7 * kMiB);
        ASSERT_TRUE(write(*writer, 0, content.substr(0, size)));
        spill_all(*writer);
        ASSERT_TRUE(write(*writer, size, content.substr(size)));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content(key) == content) << size;
    }
}

TEST_F(ShortageTest, StagedPartsCanStillBePatched) {
    const auto writer = open();
    std::string content = pattern(20 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    spill_all(*writer);
    const struct {
        std::uint64_t offset;
        std::string text;
    } patches[] = {
        {100, "a header"},
        {90, "overlapping its front"},
        {105, "and its end"},
        {80, "all of them, from before the first to behind the last of these"},
        {120, "within"},
        {2 * kMiB - 5, "across frames"},
        {3 * kMiB, std::string(kMiB, 'w')},
        {15 * kMiB + 9, "last"},
        {20 * kMiB - 4, "and beyond the end"},
    };
    for (const auto& change : patches) {
        const Status patched = write(*writer, change.offset, change.text);
        ASSERT_TRUE(patched) << patched.error().message;
        content.resize(std::max<std::size_t>(content.size(), change.offset + change.text.size()));
        content.replace(change.offset, change.text.size(), change.text);
    }
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(ShortageTest, PatchesAreStagedToo) {
    const auto writer = open();
    std::string content = pattern(2 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(write(*writer, 5, "before"));
    spill_all(*writer);
    ASSERT_TRUE(write(*writer, 8, "behind"));
    content.replace(5, 6, "before").replace(8, 6, "behind");
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content);
}

// As pages of a mapping come, or as a program writes its metadata again and again.
TEST_F(ShortageTest, AStagedPatchInManyPiecesIsReadBackOnce) {
    const auto writer = open();
    std::string content = pattern(2 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    spill_all(*writer);
    const std::string patch(900 << 10, 'p');
    ASSERT_TRUE(write(*writer, 100, patch));
    content.replace(100, patch.size(), patch);
    spill_all(*writer);
    for (std::size_t at = 1000; at < patch.size(); at += 8192) {
        const Status patched = write(*writer, at, "small");
        ASSERT_TRUE(patched) << patched.error().message;
        content.replace(at, 5, "small");
    }
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(ShortageTest, StagedPartsCanBeCut) {
    const std::string content = pattern(12 * kMiB);
    for (const std::uint64_t cut : {11 * kMiB + 5, 10 * kMiB, 9 * kMiB - 1, 3 * kMiB + 3, std::uint64_t{7}}) {
        const std::string key = "cut/" + std::to_string(cut);
        const auto writer = open(std::nullopt, key);
        ASSERT_TRUE(write(*writer, 0, content));
        spill_all(*writer);
        ASSERT_TRUE(write(*writer, cut - 2, "ab"));
        const Status done = truncate(*writer, cut);
        ASSERT_TRUE(done) << done.error().message;
        ASSERT_TRUE(write(*writer, cut, "and on"));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content(key) == content.substr(0, cut - 2) + "aband on") << cut;
    }
}

TEST_F(ShortageTest, WhatIsLeftOfAStagedPatchCanBeCut) {
    for (const bool goes_on : {false, true}) {
        const auto writer = open();
        std::string content = pattern(600'000);
        ASSERT_TRUE(write(*writer, 0, content));
        for (const std::size_t size : {100'000U, 50'000U}) {
            spill_all(*writer);
            const std::string patch(size, static_cast<char>(size >> 12));
            ASSERT_TRUE(write(*writer, 200'000, patch));
            content.replace(200'000, size, patch);
        }
        // Within what the second has left of the first.
        content.resize(260'000);
        ASSERT_TRUE(truncate(*writer, content.size()));
        if (goes_on) {
            ASSERT_TRUE(write(*writer, content.size(), "and on"));
            content += "and on";
        }
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content("dir/file") == content) << store.content("dir/file").size();
        ASSERT_TRUE(SyncStore(store).remove("dir/file"));
    }
}

// It was read back for a request that is of no use any more.
TEST_F(ShortageTest, DamageInWhatWasCutOffDoesNotFailTheFile) {
    const testing::TemporaryDirectory disk;
    WriteConfig config;
    config.staging_dir = disk.path();
    WriteEnvironment slowly{store, *pool, executor, slow, clock, *codec, config};
    const std::string content = pattern(4 * kMiB);
    const auto writer = FileWriter::create(slowly, "dir/file", std::nullopt);
    ASSERT_TRUE(write(*writer, 0, content));
    spill_all(*writer);
    slow.hold();
    ASSERT_TRUE(write(*writer, content.size(), pattern(10 * kMiB)));
    ASSERT_TRUE(slow.wait_for(1));
    ASSERT_TRUE(truncate(*writer, 2 * kMiB));
    const auto files = testing::unlinked_files(disk.path());
    ASSERT_EQ(files.size(), 1U);
    ASSERT_TRUE(testing::flip_a_bit(files[0], 3 * kMiB));
    slow.release();
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content.substr(0, 2 * kMiB));
}

TEST_F(ShortageTest, AbortGivesTheStagedBytesUp) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(3 * kMiB)));
    spill_all(*writer);
    ASSERT_TRUE(abort(*writer));
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(ShortageTest, TheStagingFileGoesWhenNothingIsStaged) {
    const auto open_files = [] {
        int count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code error;
            count += std::filesystem::read_symlink(entry, error).string().starts_with("/var/tmp/") ? 1 : 0;
        }
        return count;
    };
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(3 * kMiB)));
    spill_all(*writer);
    EXPECT_EQ(open_files(), 1);
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(testing::eventually([&] { return open_files() == 0; }));
}

class EqualPartsTest : public ShortageTest {
protected:
    static WriteConfig equal() {
        WriteConfig config;
        config.equal_parts = true;
        config.part_size = 10 * kMiB;
        return config;
    }
    EqualPartsTest() : ShortageTest(equal()) {}
};

TEST_F(EqualPartsTest, GoToTheDiskWhole) {
    write_round_robin(12, 15 * kMiB, kMiB);
    EXPECT_EQ(store.calls(Operation::kUploadPart), 24);
}

TEST_F(EqualPartsTest, AreEqualHoweverTheirBytesCame) {
    store.require_equal_parts();
    write_round_robin(20, 11 * kMiB + 12'345, 300'000);
    EXPECT_EQ(store.calls(Operation::kPut), 0);
}

TEST_F(EqualPartsTest, AreEqualAfterTheUnfinishedFrameWasSpilled) {
    store.require_equal_parts();
    const auto writer = open();
    const std::string content = pattern(35 * kMiB);
    std::uint64_t written = 0;
    for (const std::uint64_t next : std::initializer_list<std::uint64_t>{2'345'678, 2'400'000, 9'999'999, 10'485'761,
                                                                         20'971'519, 30'000'001, 35 * kMiB}) {
        ASSERT_TRUE(write(*writer, written, content.substr(written, next - written)));
        written = next;
        spill_all(*writer);
    }
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(EqualPartsTest, AreEqualAfterACut) {
    store.require_equal_parts();
    const auto writer = open();
    const std::string content = pattern(45 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content.substr(0, 24 * kMiB + 333)));
    spill_all(*writer);
    ASSERT_TRUE(truncate(*writer, 13 * kMiB + 77));
    ASSERT_TRUE(write(*writer, 13 * kMiB + 77, content.substr(13 * kMiB + 77)));
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(EqualPartsTest, AreEqualWhereACommittedFileGoesOn) {
    store.require_equal_parts();
    const auto writer = open();
    const std::string content = pattern(45 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content.substr(0, 13 * kMiB + 77)));
    ASSERT_TRUE(commit(*writer, CommitReason::kFsync));
    ASSERT_TRUE(write(*writer, 13 * kMiB + 77, content.substr(13 * kMiB + 77, 20 * kMiB)));
    spill_all(*writer);
    ASSERT_TRUE(write(*writer, 33 * kMiB + 77, content.substr(33 * kMiB + 77)));
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

class FullDiskTest : public ShortageTest {
protected:
    static WriteConfig missing() {
        WriteConfig config;
        config.staging_dir = "/nonexistent";
        return config;
    }
    FullDiskTest() : ShortageTest(missing()) {}
};

TEST_F(FullDiskTest, FailsTheFileThatHasToGoThere) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(3 * kMiB)));
    ASSERT_TRUE(testing::eventually([&] {
        relieve(*writer, Relief::kSpillOpen);
        return writer->failed().has_value();
    }));
    const Status later = write(*writer, 3 * kMiB, "x");
    ASSERT_FALSE(later);
    EXPECT_NE(later.error().message.find("dir/file"), std::string::npos);
    EXPECT_NE(later.error().message.find("/nonexistent"), std::string::npos);
    EXPECT_FALSE(commit(*writer));
    EXPECT_FALSE(store.exists("dir/file"));
}

class FullSlowDiskTest : public FullDiskTest {
protected:
    [[nodiscard]] std::shared_ptr<FileWriter> open_slowly() {
        return FileWriter::create(slowly, "dir/file", std::nullopt);
    }
    // The part being filled is on its way to the disk.
    void begin_to_spill(FileWriter& writer) {
        slow.hold();
        ASSERT_TRUE(testing::eventually([&] {
            relieve(writer, Relief::kSpillOpen);
            return slow.tasks() == 1;
        }));
    }

    WriteEnvironment slowly{store, *pool, executor, slow, clock, *codec, environment.config};
};

TEST_F(FullSlowDiskTest, DoesNotFailTheFileWhoseCommitIsOnItsWay) {
    const auto writer = open_slowly();
    const std::string content = pattern(3 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    begin_to_spill(*writer);
    store.hold(Operation::kPut);
    testing::Answer<Result<CommittedObject>> committed;
    writer->commit(CommitReason::kClose, committed.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    slow.release();
    EXPECT_FALSE(writer->failed());
    store.release(Operation::kPut);
    ASSERT_TRUE(committed.get());
    EXPECT_FALSE(writer->failed());
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(FullSlowDiskTest, DoesNotFailTheFileWhosePartHasLeft) {
    const auto writer = open_slowly();
    const std::string content = pattern(10 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content.substr(0, 3 * kMiB)));
    begin_to_spill(*writer);
    ASSERT_TRUE(write(*writer, 3 * kMiB, content.substr(3 * kMiB)));
    ASSERT_TRUE(testing::eventually([&] { return store.calls(Operation::kUploadPart) == 1; }));
    slow.release();
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
}

TEST_F(FullDiskTest, OnlyForgetsWhatWasKeptForPatches) {
    const auto writer = open();
    std::string content = pattern(20 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(write(*writer, 3, "patched before"));
    content.replace(3, 14, "patched before");
    relieve(*writer, Relief::kSpillKept);
    // The patch has been sent.
    ASSERT_TRUE(testing::eventually([&] { return store.calls(Operation::kUploadPart) == 3; }));
    ASSERT_TRUE(write(*writer, 20 * kMiB, "more"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content + "more");
}

}  // namespace
}  // namespace ckptfs
