// SPDX-License-Identifier: Apache-2.0
#include "staged/growing_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "support/held_executor.h"
#include "unit/staged/growing_file_fixture.h"

namespace ckptfs::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Codecs, GrowingFileTest, ::testing::Values("none", "auto"));

TEST_P(GrowingFileTest, EachCommitPublishesAllAndFetchesNothing) {
    for (const std::uint64_t step : {std::uint64_t{10}, kMiB - 1, 3 * kMiB + 5, 9 * kMiB}) {
        std::string text;
        const auto log = grow();
        for (int round = 0; round < 6; ++round) {
            add(*log, text, round % 2 == 0 ? bytes(step, static_cast<std::uint64_t>(round)) : squares(step));
            ASSERT_TRUE(publish(*log));
            EXPECT_FALSE(log->dirty());
            ASSERT_EQ(saved(), text) << step << ", " << round;
        }
        EXPECT_LT(log->sent_again(), 5 * kMiB);
        expect_nothing_else_is_left();
    }
    EXPECT_EQ(store.calls(Operation::kGet), 0);
}

TEST_P(GrowingFileTest, WhatIsPublishedTakesNoDiskSpace) {
    std::string text;
    const auto log = grow();
    for (int round = 0; round < 3; ++round) {
        add(*log, text, bytes(9 * kMiB, static_cast<std::uint64_t>(round)));
        EXPECT_EQ(unlinked_files(disk.path()).size(), 1U);
        ASSERT_TRUE(publish(*log));
        // Also where the disk takes no space back from a file that goes on.
        EXPECT_TRUE(eventually([&] { return unlinked_files(disk.path()).empty(); }));
    }
    add(*log, text, "more");
    ASSERT_TRUE(commit(*log));
    EXPECT_TRUE(saved() == text);
}

TEST_P(GrowingFileTest, WhatIsThereIsFetchedOnce) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 3 * kMiB + 5, 9 * kMiB + 77}) {
        std::string text = bytes(size);
        const auto log = grow(save(text));
        add(*log, text, "one");
        ASSERT_TRUE(publish(*log));
        EXPECT_EQ(saved(), text);
        expect_no_further_fetch(*log, text);
    }
}

TEST_P(GrowingFileTest, WithoutPartCopiesItIsFetchedOnce) {
    store.lack_part_copy();
    for (const std::uint64_t size : {3 * kMiB, 20 * kMiB}) {
        std::string text = bytes(size);
        const auto log = grow(save(text));
        add(*log, text, "one");
        ASSERT_TRUE(publish(*log));
        ASSERT_TRUE(saved() == text);
        EXPECT_GE(log->sent_again(), size);
        expect_no_further_fetch(*log, text);
        EXPECT_EQ(store.calls(Operation::kUploadPartCopy), 0) << size;
        expect_nothing_else_is_left();
    }
}

TEST_P(GrowingFileTest, WritingGoesOnWhileItIsPublished) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB}) {
        std::string text;
        const auto log = grow();
        add(*log, text, bytes(size));
        const Operation operation = size < kMiB ? Operation::kPut : Operation::kCompleteUpload;
        store.hold(operation);
        Answer<Result<CommittedObject>> published;
        log->commit(CommitReason::kPublish, published.callback());
        ASSERT_TRUE(store.wait_until_held(operation, 1));
        add(*log, text, "meanwhile");
        Answer<Result<CommittedObject>> synced;
        log->commit(CommitReason::kFsync, synced.callback());
        add(*log, text, "and more");
        EXPECT_FALSE(published.here());
        EXPECT_FALSE(synced.here());
        store.release(operation);
        ASSERT_TRUE(published.get());
        ASSERT_TRUE(synced.get());
        EXPECT_EQ(saved(), text) << "all that was there when it began";
        ASSERT_TRUE(commit(*log));
        EXPECT_EQ(saved(), text);
        expect_nothing_else_is_left();
    }
}

TEST_P(GrowingFileTest, WhatGrowsByMuchIsStreamed) {
    std::string text;
    const auto log = grow();
    add(*log, text, bytes(50 * kMiB));
    EXPECT_TRUE(eventually([&] { return store.calls(Operation::kUploadPart) > 0; }));
    ASSERT_TRUE(publish(*log));
    EXPECT_EQ(saved(), text);
    add(*log, text, "more");
    ASSERT_TRUE(publish(*log));
    EXPECT_EQ(saved(), text);
    add(*log, text, squares(40 * kMiB));
    ASSERT_TRUE(publish(*log));
    add(*log, text, "more");
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), text);
    expect_nothing_else_is_left();
}

// The disk is slow while one commit waits for the store, and another for that.
class GrowingOnASlowDisk : public GrowingFileTest {
protected:
    void begin_first() {
        add(*log, text, bytes(9 * kMiB));
        store.hold(Operation::kCompleteUpload);
        log->commit(CommitReason::kPublish, first.callback());
        ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    }
    // The second begins, and is to read what is staged before this write is there.
    void write_over_behind_second() {
        add(*log, text, bytes(kMiB, 1));
        log->commit(CommitReason::kPublish, second.callback());
        slow.hold();
        log->write(text.size() - 100, data("over"), written.callback());
        text.replace(text.size() - 100, 4, "over");
        ASSERT_TRUE(slow.wait_for(1));
        store.release(Operation::kCompleteUpload);
        ASSERT_TRUE(first.get());
        ASSERT_TRUE(slow.wait_for(2));
    }

    HeldExecutor slow;
    WriteEnvironment slowly{store, *pool, executor, slow, clock, *codec, environment.config};
    const std::shared_ptr<FileWriter> log = make_growing_file(slowly, kKey, std::nullopt);
    std::string text;
    Answer<Result<CommittedObject>> first;
    Answer<Result<CommittedObject>> second;
    Answer<Status> written;
};

INSTANTIATE_TEST_SUITE_P(Codecs, GrowingOnASlowDisk, ::testing::Values("none", "auto"));

TEST_P(GrowingOnASlowDisk, WhatIsWrittenOverWhileACommitReadsItIsInTheNext) {
    begin_first();
    write_over_behind_second();
    store.hold(Operation::kCompleteUpload);
    slow.release();
    ASSERT_TRUE(written.get());
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    store.release(Operation::kCompleteUpload);
    ASSERT_TRUE(second.get());
    EXPECT_TRUE(log->dirty());
    ASSERT_TRUE(commit(*log));
    EXPECT_TRUE(saved() == text);
}

TEST_P(GrowingOnASlowDisk, WhatIsWrittenOverAndLateForTwoCommitsIsInTheNext) {
    begin_first();
    write_over_behind_second();
    // The second commit is published before the write is on the disk.
    slow.release_all_but(1);
    ASSERT_TRUE(second.get());
    slow.release();
    ASSERT_TRUE(written.get());
    ASSERT_TRUE(commit(*log));
    EXPECT_TRUE(saved() == text);
}

TEST_P(GrowingOnASlowDisk, WhatIsFetchedIsNotReleasedWithWhatWasThereBefore) {
    store.lack_part_copy();
    begin_first();
    add(*log, text, "meanwhile");
    slow.hold();
    store.release(Operation::kCompleteUpload);
    ASSERT_TRUE(first.get());
    // The release comes after all that the second commit does.
    ASSERT_TRUE(slow.wait_for(1));
    log->commit(CommitReason::kPublish, second.callback());
    ASSERT_TRUE(slow.wait_for(2));
    slow.release_all_but(1);
    ASSERT_TRUE(second.get());
    slow.release();
    add(*log, text, "more");
    ASSERT_TRUE(commit(*log));
    EXPECT_TRUE(saved() == text);
}

// The second begins as one that fetches, which names what it replaces, and sends as one that has all of it here.
TEST_P(GrowingOnASlowDisk, WhatIsFetchedAndLateForTwoCommitsReplacesNoOtherVersion) {
    text = bytes(3 * kMiB);
    const auto grown = make_growing_file(slowly, kKey, save(text));
    add(*grown, text, "one");
    store.hold(Operation::kPut);
    slow.hold();
    grown->commit(CommitReason::kPublish, [&, told = first.callback()](Result<CommittedObject> object) {
        store.put_object(kKey, "another version");
        slow.release();
        told(std::move(object));
    });
    // The three MiB that are fetched, and what was written, on its way back.
    ASSERT_TRUE(slow.wait_for(4));
    slow.release_all_but(3);
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    add(*grown, text, "two");
    grown->commit(CommitReason::kPublish, second.callback());
    store.release(Operation::kPut);
    ASSERT_TRUE(first.get());
    const auto result = second.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value, ESTALE);
    EXPECT_EQ(store.content(kKey), "another version");
}

// A commit reads all that is staged, a hole too.
TEST_P(GrowingOnASlowDisk, AHoleIsNotStagedWhileACommitIsUnderWay) {
    begin_first();
    const std::uint64_t far = 50 * kMiB;
    log->write(far, data("far"), written.callback());
    EXPECT_FALSE(written.here());
    store.release(Operation::kCompleteUpload);
    ASSERT_TRUE(first.get());
    ASSERT_TRUE(written.get());
    EXPECT_TRUE(unlinked_files(disk.path()).empty());
    EXPECT_EQ(saved(), text);
    ASSERT_TRUE(commit(*log));
    text.resize(far, '\0');
    EXPECT_TRUE(saved() == text + "far");
    expect_nothing_else_is_left();
}

TEST_P(GrowingFileTest, WritingGoesOnWhileAStreamIsPublished) {
    std::string text;
    const auto log = grow();
    add(*log, text, bytes(40 * kMiB));
    store.hold(Operation::kCompleteUpload);
    Answer<Result<CommittedObject>> published;
    log->commit(CommitReason::kPublish, published.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    add(*log, text, squares(5 * kMiB));
    store.release(Operation::kCompleteUpload);
    ASSERT_TRUE(published.get());
    EXPECT_EQ(saved(), text.substr(0, 40 * kMiB));
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), text);
}

TEST_P(GrowingFileTest, PartsOfOneSizeAreKept) {
    environment.config.equal_parts = true;
    store.require_equal_parts();
    std::string text;
    const auto log = grow();
    for (const std::uint64_t step : {kMiB, 20 * kMiB, kMiB + 5, 60 * kMiB, kMiB}) {
        add(*log, text, bytes(step, step));
        ASSERT_TRUE(publish(*log));
        ASSERT_TRUE(saved() == text) << step;
    }
    expect_nothing_else_is_left();
}

TEST_P(GrowingFileTest, IsChangedAndCutAnywhereWhileItIsSmall) {
    std::string text = bytes(2 * kMiB);
    const auto log = grow(save(text));
    add(*log, text, bytes(kMiB, 1));
    for (int round = 0; round < 3; ++round) {
        for (const std::uint64_t offset : {std::uint64_t{0}, kMiB + 3, text.size() - 2}) {
            const std::string change(5, static_cast<char>('a' + round));
            ASSERT_TRUE(write(*log, offset, change));
            text.resize(std::max<std::size_t>(text.size(), offset + change.size()));
            text.replace(offset, change.size(), change);
        }
        ASSERT_TRUE(publish(*log));
        ASSERT_EQ(saved(), text) << round;
        const std::uint64_t size = text.size() - 100'000;
        ASSERT_TRUE(truncate(*log, size));
        ASSERT_TRUE(truncate(*log, size + 50'000));
        text.resize(size);
        text.resize(size + 50'000, '\0');
        EXPECT_EQ(log->size(), text.size());
        ASSERT_TRUE(publish(*log));
        ASSERT_EQ(saved(), text) << round;
    }
    ASSERT_TRUE(truncate(*log, 0));
    ASSERT_TRUE(write(*log, 0, "another beginning"));
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), "another beginning");
    expect_nothing_else_is_left();
}

TEST_P(GrowingFileTest, IsCutAtAnySize) {
    for (const std::uint64_t before : {3 * kMiB, 9 * kMiB, 40 * kMiB}) {
        for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{5}, kMiB, 7 * kMiB + 3, 60 * kMiB}) {
            for (const bool published : {false, true}) {
                std::string text;
                const auto log = grow();
                add(*log, text, bytes(before));
                if (published) {
                    ASSERT_TRUE(publish(*log));
                }
                const Status cut = truncate(*log, size);
                if (!cut) {
                    EXPECT_EQ(cut.error().errno_value, EOPNOTSUPP);
                    static_cast<void>(abort(*log));
                    continue;
                }
                text.resize(size, '\0');
                add(*log, text, "behind");
                ASSERT_TRUE(commit(*log));
                EXPECT_TRUE(saved() == text) << before << ", " << size << ", " << published;
            }
        }
    }
}

TEST_P(GrowingFileTest, AnEmptyFileIsPublishedByItsCloseOnly) {
    const auto log = grow();
    EXPECT_TRUE(log->pristine());
    EXPECT_EQ(publish(*log)->etag, "");
    EXPECT_EQ(commit(*log, CommitReason::kFsync)->etag, "");
    EXPECT_FALSE(store.exists(kKey));
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), "");
}

TEST_P(GrowingFileTest, TakesAnotherNameBeforeItsFirstCommitOnly) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    ASSERT_TRUE(log->move_to("dir/renamed"));
    ASSERT_TRUE(publish(*log));
    EXPECT_EQ(file("dir/renamed"), text);
    EXPECT_FALSE(log->move_to("dir/again"));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"dir/renamed"});
}

TEST_P(GrowingFileTest, GoesOnWhereItsObjectWasCopied) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB}) {
        std::string text;
        const auto log = grow();
        add(*log, text, bytes(size));
        CommittedObject object = publish(*log).value();
        store.put_object("dir/copy", store.content(kKey), store.info(kKey).metadata);
        object.etag = store.info("dir/copy").etag;
        log->committed_moved("dir/copy", object);
        EXPECT_EQ(log->key(), "dir/copy");
        add(*log, text, "more");
        ASSERT_TRUE(commit(*log));
        EXPECT_EQ(file("dir/copy"), text);
    }
}

// A rename takes the key over after its own requests, and a log that grows by much asks for its key at any time.
TEST_P(GrowingFileTest, WhatWasAskedOfTheOldNameSaysNothingOfTheNew) {
    std::string text;
    const auto log = grow();
    add(*log, text, bytes(kMiB));
    CommittedObject object = publish(*log).value();
    store.hold(Operation::kHead);
    add(*log, text, bytes(32 * kMiB, 1));
    Answer<Status> written;
    log->append(data("more"), written.callback());
    text += "more";
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    store.put_object("dir/copy", store.content(kKey), store.info(kKey).metadata);
    object.etag = store.info("dir/copy").etag;
    log->committed_moved("dir/copy", object);
    store.release(Operation::kHead);
    ASSERT_TRUE(written.get());
    ASSERT_TRUE(commit(*log));
    EXPECT_TRUE(file("dir/copy") == text);
}

}  // namespace
}  // namespace ckptfs::testing
