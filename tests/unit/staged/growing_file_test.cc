// SPDX-License-Identifier: Apache-2.0
#include "staged/growing_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/log.h"
#include "support/temporary_directory.h"
#include "support/unlinked_files.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs::testing {
namespace {

constexpr char kKey[] = "dir/file";

std::string bytes(std::uint64_t size, std::uint64_t seed = 0) {
    std::mt19937_64 random(seed);
    std::string text(size, '\0');
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
        const std::uint64_t bits = random();
        std::memcpy(text.data() + at, &bits, sizeof bits);
    }
    return text;
}

std::string words(std::uint64_t size) {
    std::string text;
    for (std::uint64_t word = 0; text.size() < size; ++word) {
        text += std::to_string(word * word % 100'003) + " ";
    }
    text.resize(size);
    return text;
}

class GrowingFileTest : public ::testing::TestWithParam<const char*>, protected WriterFixture {
protected:
    GrowingFileTest() : WriterFixture(256 * kMiB, {}, GetParam()) { environment.config.staging_dir = disk.path(); }
    ~GrowingFileTest() override {
        staging.stop();
        executor.stop();
    }

    std::shared_ptr<FileWriter> grow(std::optional<CommittedObject> base = std::nullopt,
                                     Overwrite overwrite = Overwrite::kAllowed) {
        return make_growing_file(environment, kKey, std::move(base), overwrite);
    }
    CommittedObject save(std::string_view content) {
        const auto writer = open();
        EXPECT_TRUE(write(*writer, 0, content));
        CommittedObject object = commit(*writer).value();
        store.reset_calls();
        return object;
    }
    void add(FileWriter& file, std::string& text, const std::string& more) {
        for (std::size_t at = 0; at < more.size(); at += kMiB) {
            ASSERT_TRUE(append(file, std::string_view(more).substr(at, kMiB)));
        }
        text += more;
        EXPECT_EQ(file.size(), text.size());
    }
    static Result<CommittedObject> publish(FileWriter& file) { return commit(file, CommitReason::kPublish); }
    [[nodiscard]] std::string saved() const { return file(kKey); }
    void lose(Operation operation, int times, bool after_effect = false) {
        store.inject(Fault{operation, "", store_error(EIO, "ServiceUnavailable", 503), 0, times, after_effect});
    }
    void flip_a_staged_bit() const {
        const auto files = unlinked_files(disk.path());
        ASSERT_EQ(files.size(), 1U);
        ASSERT_TRUE(flip_a_bit(files[0], 0));
    }
    void expect_nothing_else_is_left() {
        EXPECT_TRUE(no_upload_left());
        EXPECT_EQ(store.keys(), std::vector<std::string>{kKey});
    }

    const TemporaryDirectory disk;
};
INSTANTIATE_TEST_SUITE_P(Codecs, GrowingFileTest, ::testing::Values("none", "auto"));

TEST_P(GrowingFileTest, EachCommitPublishesAllAndFetchesNothing) {
    for (const std::uint64_t step : {std::uint64_t{10}, kMiB - 1, 3 * kMiB + 5, 9 * kMiB}) {
        std::string text;
        const auto log = grow();
        for (int round = 0; round < 6; ++round) {
            add(*log, text, round % 2 == 0 ? bytes(step, static_cast<std::uint64_t>(round)) : words(step));
            ASSERT_TRUE(publish(*log));
            EXPECT_FALSE(log->dirty());
            ASSERT_EQ(saved(), text) << step << ", " << round;
        }
        EXPECT_LT(log->sent_again(), 5 * kMiB);
        expect_nothing_else_is_left();
    }
    EXPECT_EQ(store.calls(Operation::kGet), 0);
}

TEST_P(GrowingFileTest, WhatIsThereIsFetchedOnce) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 3 * kMiB + 5, 9 * kMiB + 77}) {
        std::string text = bytes(size);
        const auto log = grow(save(text));
        add(*log, text, "one");
        ASSERT_TRUE(publish(*log));
        EXPECT_EQ(saved(), text);
        store.reset_calls();
        for (int round = 0; round < 3; ++round) {
            add(*log, text, "more");
            ASSERT_TRUE(publish(*log));
            ASSERT_EQ(saved(), text);
        }
        EXPECT_EQ(store.calls(Operation::kGet), 0) << size;
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

TEST_P(GrowingFileTest, APublishThatFailsIsNoFailure) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB}) {
        for (const Operation operation :
             {Operation::kPut, Operation::kCreateUpload, Operation::kUploadPart, Operation::kUploadPartCopy,
              Operation::kCompleteUpload, Operation::kHead, Operation::kGet}) {
            std::string text = bytes(size);
            const auto log = grow(save(text));
            add(*log, text, "one");
            lose(operation, 100);
            static_cast<void>(publish(*log));
            add(*log, text, "two");
            EXPECT_EQ(log->dirty(), true);
            EXPECT_EQ(log->dirty(), !publish(*log)) << "not all need each request";
            EXPECT_FALSE(log->failed());
            store.clear_faults();
            add(*log, text, "three");
            ASSERT_TRUE(publish(*log));
            EXPECT_EQ(saved(), text) << size;
            expect_nothing_else_is_left();
        }
    }
}

TEST_P(GrowingFileTest, WhatIsWrittenStaysWhileTheStoreIsNotEvenAsked) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    ASSERT_TRUE(publish(*log));
    add(*log, text, "two");
    lose(Operation::kHead, 100);
    EXPECT_FALSE(publish(*log));
    add(*log, text, bytes(40 * kMiB));
    EXPECT_FALSE(log->failed());
    EXPECT_FALSE(publish(*log));
    add(*log, text, "three");
    EXPECT_FALSE(log->failed());
    store.clear_faults();
    ASSERT_TRUE(publish(*log));
    EXPECT_TRUE(saved() == text);
    expect_nothing_else_is_left();
}

TEST_P(GrowingFileTest, ACommitThatSomebodyWaitsForTellsItsFailure) {
    for (const CommitReason reason : {CommitReason::kClose, CommitReason::kFsync, CommitReason::kRename}) {
        std::string text;
        const auto log = grow();
        add(*log, text, "one");
        lose(Operation::kPut, 100);
        EXPECT_FALSE(publish(*log));
        EXPECT_FALSE(log->failed());
        EXPECT_FALSE(commit(*log, reason));
        EXPECT_TRUE(log->failed());
        EXPECT_FALSE(append(*log, "two"));
        store.clear_faults();
        EXPECT_FALSE(publish(*log));
        EXPECT_FALSE(store.exists(kKey));
    }
}

TEST_P(GrowingFileTest, DamageInStagingThatFailsAFileIsLogged) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    flip_a_staged_bit();
    const LogCounts before = log_counts();
    const auto synced = commit(*log, CommitReason::kFsync);
    ASSERT_FALSE(synced);
    EXPECT_EQ(synced.error().errno_value, EIO);
    EXPECT_EQ(log_counts().errors, before.errors + 1);
    EXPECT_FALSE(store.exists(kKey));
}

TEST_P(GrowingFileTest, WhoSyncsWhileAPublishFailsIsNotToldThat) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    store.hold(Operation::kPut);
    lose(Operation::kPut, 1);
    Answer<Result<CommittedObject>> published;
    log->commit(CommitReason::kPublish, published.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    Answer<Result<CommittedObject>> synced;
    log->commit(CommitReason::kFsync, synced.callback());
    store.release(Operation::kPut);
    EXPECT_FALSE(published.get());
    EXPECT_TRUE(synced.get());
    EXPECT_EQ(saved(), text);
}

TEST_P(GrowingFileTest, ACommitWhoseAnswerWasLostIsRecognised) {
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1000}, 9 * kMiB}) {
        for (const Overwrite overwrite : {Overwrite::kAllowed, Overwrite::kRefused}) {
            std::string text = bytes(size);
            const auto log = size == 0 ? grow(std::nullopt, overwrite) : grow(save(text));
            if (size == 0 && store.exists(kKey)) {
                store.remove(std::string(kKey), [](const Status&) {});
            }
            add(*log, text, "one");
            lose(Operation::kPut, 1, true);
            lose(Operation::kCompleteUpload, 1, true);
            EXPECT_FALSE(publish(*log));
            EXPECT_EQ(saved(), text) << "it took effect";
            store.clear_faults();
            add(*log, text, "two");
            ASSERT_TRUE(publish(*log));
            EXPECT_EQ(saved(), text);
            add(*log, text, "three");
            ASSERT_TRUE(commit(*log));
            EXPECT_EQ(saved(), text);
            expect_nothing_else_is_left();
        }
    }
}

TEST_P(GrowingFileTest, AnotherVersionIsNotReplaced) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB}) {
        for (const bool published : {false, true}) {
            std::string text = bytes(size);
            const auto log = grow(save(text));
            add(*log, text, "one");
            if (published) {
                ASSERT_TRUE(publish(*log));
                add(*log, text, "two");
            }
            save("another version");
            const auto result = publish(*log);
            ASSERT_FALSE(result);
            EXPECT_EQ(result.error().errno_value, ESTALE);
            EXPECT_TRUE(log->failed());
            EXPECT_FALSE(append(*log, "three"));
            EXPECT_EQ(saved(), "another version");
        }
    }
}

TEST_P(GrowingFileTest, ADamagedFetchIsNotSentOn) {
    std::string text = bytes(3 * kMiB);
    const auto log = grow(save(text));
    add(*log, text, "one");
    lose(Operation::kGet, 100);
    EXPECT_FALSE(publish(*log));
    EXPECT_FALSE(commit(*log));
    EXPECT_EQ(saved(), bytes(3 * kMiB));
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
    add(*log, text, words(40 * kMiB));
    ASSERT_TRUE(publish(*log));
    add(*log, text, "more");
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), text);
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
    add(*log, text, words(5 * kMiB));
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

TEST_P(GrowingFileTest, WithoutADiskItIsWrittenAsAnyOtherFile) {
    environment.config.staging_dir = "/proc/self";
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1000}, 9 * kMiB}) {
        std::string text = bytes(size);
        const auto log = size == 0 ? grow() : grow(save(text));
        for (int round = 0; round < 3; ++round) {
            add(*log, text, bytes(3 * kMiB, static_cast<std::uint64_t>(round)));
            ASSERT_TRUE(publish(*log));
            ASSERT_EQ(saved(), text) << size << ", " << round;
        }
        expect_nothing_else_is_left();
    }
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

TEST_P(GrowingFileTest, AbortLeavesNothingBehind) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB, 40 * kMiB}) {
        std::string text = bytes(size);
        const auto log = grow(save("before"));
        add(*log, text = "before", bytes(size));
        store.hold(Operation::kPut);
        store.hold(Operation::kCompleteUpload);
        log->commit(CommitReason::kPublish, [](const auto&) {});
        Answer<Status> aborted;
        Error why;
        why.message = "given up";
        log->abort(why, aborted.callback());
        store.release(Operation::kPut);
        store.release(Operation::kCompleteUpload);
        EXPECT_TRUE(aborted.get());
        EXPECT_TRUE(no_upload_left());
        EXPECT_FALSE(append(*log, "more"));
        EXPECT_FALSE(commit(*log));
        EXPECT_TRUE(saved() == "before" || saved() == text);
    }
    EXPECT_TRUE(all_buffers_returned());
}

}  // namespace
}  // namespace ckptfs::testing
