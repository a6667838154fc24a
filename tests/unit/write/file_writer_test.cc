// SPDX-License-Identifier: Apache-2.0
#include "write/file_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/held_executor.h"
#include "support/hooked_store.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs {
namespace {

using testing::Answer;
using testing::Fate;
using testing::HeldExecutor;
using testing::HookedStore;
using testing::kMiB;
using testing::Operation;
using testing::pattern;
using testing::WriterFixture;

class FileWriterTest : public ::testing::Test, protected WriterFixture {
protected:
    void TearDown() override {
        EXPECT_TRUE(all_buffers_returned());
        EXPECT_TRUE(no_upload_left());
    }
};

TEST_F(FileWriterTest, PublishesAtCloseAndNotBefore) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "hello"));
    EXPECT_EQ(store.calls(), 0);
    EXPECT_EQ(writer->size(), 5U);
    EXPECT_TRUE(writer->dirty());
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_EQ(store.content("dir/file"), "hello");
    EXPECT_EQ(committed->etag, store.info("dir/file").etag);
    EXPECT_EQ(committed->size, 5U);
    EXPECT_EQ(committed->stored_size, 5U);
    EXPECT_GT(committed->modified, WallTime());
    EXPECT_FALSE(writer->dirty());
    // One request for a small file.
    EXPECT_EQ(store.calls(), 1);
}

TEST_F(FileWriterTest, SendsLargeFilesInPartsWhileTheyAreWritten) {
    const auto writer = open();
    const std::string content = pattern(40 * kMiB + 12345);
    ASSERT_TRUE(write(*writer, 0, content));
    EXPECT_TRUE(testing::eventually([this] { return store.calls(Operation::kUploadPart) == 5; }));
    EXPECT_FALSE(store.exists("dir/file"));
    EXPECT_TRUE(testing::eventually([&] { return writer->progress().bytes_in_store == 40 * kMiB; }));
    EXPECT_EQ(writer->progress().bytes_acknowledged, content.size());
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(store.content("dir/file") == content);
    EXPECT_EQ(store.calls(Operation::kUploadPart), 6);
    EXPECT_EQ(store.calls(Operation::kPut), 0);
    EXPECT_EQ(writer->progress().bytes_in_store, content.size());
}

TEST_F(FileWriterTest, WaitsForTheStoreWhenItIsManyPartsAhead) {
    environment.config.max_parts_in_flight = 2;
    const auto writer = open();
    const std::string part = pattern(8 * kMiB);
    store.hold(Operation::kUploadPart);
    ASSERT_TRUE(write(*writer, 0, part));
    ASSERT_TRUE(write(*writer, part.size(), part));
    ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 2));
    Answer<Status> ahead;
    writer->write(2 * part.size(), data("more"), ahead.callback());
    EXPECT_FALSE(ahead.here(std::chrono::milliseconds(50)));
    store.release(Operation::kUploadPart);
    ASSERT_TRUE(ahead.get());
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), part + part + "more");
}

TEST_F(FileWriterTest, HoldsEverySizeAroundTheBorders) {
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1}, kMiB - 1, kMiB, kMiB + 1, 8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1, 9 * kMiB,
          16 * kMiB - 1, 16 * kMiB, 16 * kMiB + 1, 50 * kMiB}) {
        const std::string key = "size/" + std::to_string(size);
        const auto writer = open(std::nullopt, key);
        const std::string content = pattern(size);
        ASSERT_TRUE(write(*writer, 0, content));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content(key) == content) << size;
        EXPECT_EQ(committed->size, size);
    }
}

TEST_F(FileWriterTest, PutsAFileOfJustOnePartInOneRequest) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(8 * kMiB)));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.calls(), 1);
}

TEST_F(FileWriterTest, TakesWritesOfAnySizeWithoutHoldingABufferEach) {
    for (const std::size_t piece : {std::size_t{98}, std::size_t{8192}, std::size_t{65536 + 7}, std::size_t{300'000}}) {
        const std::string key = "piece/" + std::to_string(piece);
        const auto writer = open(std::nullopt, key);
        const std::string content = pattern(std::min<std::uint64_t>(piece * 3000, 12 * kMiB));
        ASSERT_TRUE(write(*writer, 0, content, piece));
        ASSERT_TRUE(commit(*writer));
        EXPECT_TRUE(store.content(key) == content) << piece;
    }
    // 100 writes of 8 KiB are less than one buffer.
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(800 * 1024), 8192));
    EXPECT_TRUE(
        testing::eventually([this] { return pool->usage().in_use[static_cast<std::size_t>(MemoryUse::kWrite)] == 1; }));
    ASSERT_TRUE(commit(*writer));
}

TEST_F(FileWriterTest, ClosingAFileThatWasNeverWrittenPublishesAnEmptyObject) {
    const auto writer = open();
    EXPECT_TRUE(writer->pristine());
    EXPECT_TRUE(writer->dirty());
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.exists("dir/file"));
    EXPECT_EQ(store.content("dir/file"), "");
    EXPECT_FALSE(writer->dirty());
    EXPECT_FALSE(writer->pristine());
}

TEST_F(FileWriterTest, FsyncBeforeTheFirstWritePublishesNothing) {
    const auto writer = open();
    const auto synced = commit(*writer, CommitReason::kFsync);
    ASSERT_TRUE(synced);
    EXPECT_TRUE(synced->etag.empty());
    EXPECT_EQ(store.calls(), 0);
    EXPECT_TRUE(writer->dirty());
    ASSERT_TRUE(write(*writer, 0, "metadata"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "metadata");
}

TEST_F(FileWriterTest, ACommitWithNothingNewIsASuccessWithoutARequest) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "x"));
    const auto first = commit(*writer);
    ASSERT_TRUE(first);
    for (const CommitReason reason : {CommitReason::kClose, CommitReason::kFsync, CommitReason::kRename}) {
        const auto again = commit(*writer, reason);
        ASSERT_TRUE(again);
        EXPECT_EQ(again->etag, first->etag);
    }
    EXPECT_EQ(store.calls(), 1);
}

TEST_F(FileWriterTest, GoesOnAfterEachFsyncFromASmallObject) {
    const auto writer = open();
    std::string content;
    for (int round = 0; round < 4; ++round) {
        const std::string more = pattern(700'000, content.size());
        ASSERT_TRUE(write(*writer, content.size(), more));
        content += more;
        ASSERT_TRUE(commit(*writer, CommitReason::kFsync));
        EXPECT_TRUE(store.content("dir/file") == content);
    }
    EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 0);
}

TEST_F(FileWriterTest, GoesOnAfterEachFsyncByCopyingALargeObject) {
    const auto writer = open();
    std::string content;
    for (const std::uint64_t size : {5 * kMiB, 3 * kMiB, 20 * kMiB, std::uint64_t{1}}) {
        const std::string more = pattern(size, content.size());
        ASSERT_TRUE(write(*writer, content.size(), more));
        content += more;
        const auto committed = commit(*writer, CommitReason::kFsync);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content("dir/file") == content);
    }
    EXPECT_EQ(store.calls(Operation::kGet), 0);
    EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 3);
}

TEST_F(FileWriterTest, AppendsToAnObjectOfAnySize) {
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{10}, 5 * kMiB - 1, 5 * kMiB, 30 * kMiB}) {
        const std::string key = "append/" + std::to_string(size);
        const std::string before = pattern(size);
        store.put_object(key, before);
        const auto writer = open(CommittedObject{store.info(key).etag, size, size, {}}, key);
        EXPECT_FALSE(writer->dirty());
        EXPECT_FALSE(writer->pristine());
        EXPECT_EQ(writer->size(), size);
        ASSERT_TRUE(append(*writer, "one"));
        ASSERT_TRUE(append(*writer, "two"));
        EXPECT_EQ(writer->size(), size + 6);
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content(key) == before + "onetwo") << size;
    }
}

TEST_F(FileWriterTest, AppendingToAVersionThatIsGoneFails) {
    for (const std::uint64_t size : {std::uint64_t{10}, 6 * kMiB}) {
        store.put_object("dir/file", pattern(size));
        const std::string etag = store.info("dir/file").etag;
        store.put_object("dir/file", "another");
        const auto writer = open(CommittedObject{etag, size, size, {}});
        Answer<Status> written;
        writer->write(size, data("more"), written.callback());
        const auto committed = commit(*writer);
        ASSERT_FALSE(committed);
        EXPECT_EQ(committed.error().errno_value, ESTALE);
        EXPECT_EQ(store.content("dir/file"), "another");
    }
}

TEST_F(FileWriterTest, AnOpenWithoutChangesPublishesNothing) {
    store.put_object("dir/file", "content");
    const auto writer = open(CommittedObject{store.info("dir/file").etag, 7, 7, {}});
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.calls(), 0);
}

TEST_F(FileWriterTest, TruncateUpIsAHintAndZeros) {
    const auto writer = open();
    const std::string content = pattern(20 * kMiB);
    ASSERT_TRUE(truncate(*writer, 20 * kMiB));
    EXPECT_EQ(writer->size(), 20 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content.substr(0, 11 * kMiB + 3)));
    EXPECT_EQ(writer->size(), 20 * kMiB);
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content.substr(0, 11 * kMiB + 3) + std::string(9 * kMiB - 3, '\0'));
}

TEST_F(FileWriterTest, ATruncatedFileWithoutWritesIsAllZeros) {
    const auto writer = open();
    ASSERT_TRUE(truncate(*writer, 100));
    EXPECT_FALSE(writer->pristine());
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), std::string(100, '\0'));
}

TEST_F(FileWriterTest, AForwardJumpIsFilledWithZeros) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "head"));
    ASSERT_TRUE(write(*writer, 200 * kMiB, "tail"));
    ASSERT_TRUE(commit(*writer));
    const std::string content = store.content("dir/file");
    ASSERT_EQ(content.size(), 200 * kMiB + 4);
    EXPECT_EQ(content.substr(0, 5), std::string("head\0", 5));
    EXPECT_EQ(content.substr(200 * kMiB - 1), std::string("\0tail", 5));
    EXPECT_EQ(content.find_first_not_of('\0', 4), 200 * kMiB);
}

TEST_F(FileWriterTest, TruncateToZeroStartsOver) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    ASSERT_TRUE(truncate(*writer, 0));
    EXPECT_EQ(writer->size(), 0U);
    ASSERT_TRUE(write(*writer, 0, "new"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "new");
    // And of a committed file.
    ASSERT_TRUE(truncate(*writer, 0));
    EXPECT_TRUE(writer->dirty());
    EXPECT_EQ(store.content("dir/file"), "new");
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "");
}

TEST_F(FileWriterTest, TruncatesDownWhereTheBytesAreStillHere) {
    const std::string content = pattern(30 * kMiB);
    for (const std::uint64_t cut :
         {30 * kMiB - 1, 29 * kMiB, 24 * kMiB + 17, 24 * kMiB, 16 * kMiB, 5 * kMiB + 3, std::uint64_t{7}}) {
        const std::string key = "cut/" + std::to_string(cut);
        const auto writer = open(std::nullopt, key);
        ASSERT_TRUE(write(*writer, 0, content.substr(0, cut < 8 * kMiB ? 12 * kMiB : 30 * kMiB)));
        ASSERT_TRUE(truncate(*writer, cut)) << cut;
        EXPECT_EQ(writer->size(), cut);
        ASSERT_TRUE(write(*writer, cut, "and on"));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content(key) == content.substr(0, cut) + "and on") << cut;
    }
}

TEST_F(FileWriterTest, TruncatesACommittedObjectDown) {
    for (const std::uint64_t cut : {std::uint64_t{3}, 6 * kMiB, 20 * kMiB - 1}) {
        const std::string content = pattern(20 * kMiB);
        store.put_object("dir/file", content);
        const auto writer = open(CommittedObject{store.info("dir/file").etag, 20 * kMiB, 20 * kMiB, {}});
        ASSERT_TRUE(truncate(*writer, cut));
        ASSERT_TRUE(truncate(*writer, cut + 5));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content("dir/file") == content.substr(0, cut) + std::string(5, '\0')) << cut;
    }
}

TEST_F(FileWriterTest, TruncatesDownIntoACommittedObjectThatHasBeenWrittenTo) {
    for (const std::uint64_t size : {std::uint64_t{10}, 3 * kMiB}) {
        const auto writer = open();
        const std::string content = pattern(size);
        ASSERT_TRUE(write(*writer, 0, content));
        ASSERT_TRUE(commit(*writer, CommitReason::kFsync));
        ASSERT_TRUE(write(*writer, size, "more"));
        ASSERT_TRUE(truncate(*writer, size - 2));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_TRUE(store.content("dir/file") == content.substr(0, size - 2)) << size;
    }
}

TEST_F(FileWriterTest, RefusesToCutWhatIsInTheStore) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(40 * kMiB)));
    const Status cut = truncate(*writer, 12 * kMiB);
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().errno_value, EOPNOTSUPP);
    EXPECT_FALSE(commit(*writer));
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(FileWriterTest, PatchesTheFirstAndTheLastPartUntilCommit) {
    const auto writer = open();
    std::string content = pattern(44 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    const struct {
        std::uint64_t offset;
        std::string text;
    } patches[] = {
        {0, "at the very beginning"},
        {3 * kMiB - 4, "across frames"},
        {8 * kMiB - 3, "end"},
        {39 * kMiB, "in the last part that was sent"},
        {40 * kMiB - 5, "across the last parts"},
        {44 * kMiB - 6, "beyond the end"},
    };
    for (const auto& change : patches) {
        ASSERT_TRUE(write(*writer, change.offset, change.text)) << change.text;
        content.resize(std::max<std::size_t>(content.size(), change.offset + change.text.size()));
        content.replace(change.offset, change.text.size(), change.text);
    }
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content);
    // Five parts and the last, and two of them once more however often they were patched.
    EXPECT_EQ(store.calls(Operation::kUploadPart), 8);
}

TEST_F(FileWriterTest, RefusesAStepBackIntoThePartsBetween) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(44 * kMiB)));
    const Status back = write(*writer, 20 * kMiB, "patch");
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().errno_value, EOPNOTSUPP);
    EXPECT_NE(back.error().message.find("dir/file"), std::string::npos);
    EXPECT_NE(back.error().message.find(std::to_string(20 * kMiB)), std::string::npos);
    EXPECT_NE(back.error().message.find(std::to_string(44 * kMiB)), std::string::npos);
    EXPECT_EQ(back.error().message.find('\n'), std::string::npos);
    // The first failure answers everything from now on.
    EXPECT_EQ(write(*writer, 44 * kMiB, "more").error().message, back.error().message);
    EXPECT_EQ(truncate(*writer, 0).error().message, back.error().message);
    EXPECT_EQ(commit(*writer).error().message, back.error().message);
    ASSERT_TRUE(writer->failed());
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(FileWriterTest, RefusesAStepBackIntoWhatIsCopied) {
    store.put_object("dir/file", pattern(20 * kMiB));
    const auto writer = open(CommittedObject{store.info("dir/file").etag, 20 * kMiB, 20 * kMiB, {}});
    EXPECT_EQ(write(*writer, 0, "new head").error().errno_value, EOPNOTSUPP);
    EXPECT_TRUE(store.content("dir/file") == pattern(20 * kMiB));
}

TEST_F(FileWriterTest, PatchesASmallCommittedObject) {
    store.put_object("dir/file", "0123456789");
    const auto writer = open(CommittedObject{store.info("dir/file").etag, 10, 10, {}});
    ASSERT_TRUE(write(*writer, 4, "four"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "0123four89");
}

TEST_F(FileWriterTest, RefusesAWriteBeyondWhatTheBudgetReaches) {
    const auto writer = open();
    const Status far = write(*writer, std::uint64_t{6} << 40, "x");
    ASSERT_FALSE(far);
    EXPECT_EQ(far.error().errno_value, EFBIG);
    EXPECT_EQ(store.calls(), 0);
    EXPECT_EQ(truncate(*open(), std::uint64_t{6} << 40).error().errno_value, EFBIG);
}

TEST_F(FileWriterTest, AbortEndsTheUploadAndKeepsItsReason) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    ASSERT_TRUE(abort(*writer, EOWNERDEAD));
    EXPECT_EQ(store.open_uploads(), 0);
    EXPECT_EQ(write(*writer, 20 * kMiB, "x").error().errno_value, EOWNERDEAD);
    EXPECT_EQ(commit(*writer).error().errno_value, EOWNERDEAD);
    EXPECT_FALSE(store.exists("dir/file"));
    // Again: nothing is left to end.
    EXPECT_TRUE(abort(*writer));
    EXPECT_EQ(writer->failed()->errno_value, EOWNERDEAD);
}

TEST_F(FileWriterTest, WhatWasCommittedStaysWhenTheRestIsAborted) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "first"));
    ASSERT_TRUE(commit(*writer, CommitReason::kFsync));
    ASSERT_TRUE(write(*writer, 5, pattern(20 * kMiB)));
    ASSERT_TRUE(abort(*writer));
    EXPECT_EQ(store.content("dir/file"), "first");
}

TEST_F(FileWriterTest, TheDestructorAborts) {
    auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    writer.reset();
    EXPECT_TRUE(no_upload_left());
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(FileWriterTest, SeveralCommitsThatWaitAreAnsweredByOne) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "hello"));
    store.hold(Operation::kPut);
    std::vector<Answer<Result<CommittedObject>>> answers(3);
    for (auto& answer : answers) {
        writer->commit(CommitReason::kFsync, answer.callback());
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    // Written while the commit is under way: belongs to the next one.
    Answer<Status> late;
    writer->write(5, data(" again"), late.callback());
    EXPECT_FALSE(late.here());
    store.release(Operation::kPut);
    for (auto& answer : answers) {
        ASSERT_TRUE(answer.get());
    }
    ASSERT_TRUE(late.get());
    EXPECT_EQ(store.calls(Operation::kPut), 1);
    EXPECT_EQ(store.content("dir/file"), "hello");
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "hello again");
}

TEST_F(FileWriterTest, WritesThatArriveSwappedAreNotOutOfOrder) {
    const auto writer = open();
    const std::string content = pattern(24 * kMiB);
    std::vector<Answer<Status>> answers(24);
    for (std::size_t index = 0; index < 24; ++index) {
        const std::size_t swapped = index ^ 3;
        writer->write(swapped * kMiB, data(std::string_view(content).substr(swapped * kMiB, kMiB)),
                      answers[index].callback());
    }
    for (auto& answer : answers) {
        const Status status = answer.get();
        ASSERT_TRUE(status) << status.error().message;
    }
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content);
}

// All frames are ready at once, so that two parts are about to leave when the first of them is sent.
TEST_F(FileWriterTest, ATruncationForgetsPartsThatAreAboutToLeave) {
    std::shared_ptr<FileWriter> writer;
    Answer<Status> cut;
    HookedStore hooked(store, [&](int request) {
        if (request == 1) {
            writer->truncate(3 * kMiB, cut.callback());
        }
        return Fate::kPasses;
    });
    HeldExecutor compute;
    WriteEnvironment held{hooked, *pool, compute, staging, clock, *codec, {}};
    writer = FileWriter::create(held, "dir/file", std::nullopt);
    const std::string content = pattern(18 * kMiB);
    compute.hold();
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(compute.wait_for(16));
    compute.release();
    ASSERT_TRUE(cut.get());
    EXPECT_EQ(writer->size(), 3 * kMiB);
    ASSERT_TRUE(commit(*writer));
    EXPECT_TRUE(store.content("dir/file") == content.substr(0, 3 * kMiB));
}

}  // namespace
}  // namespace ckptfs
