// SPDX-License-Identifier: Apache-2.0
// What a log does where the store, the disk or another mount gets in its way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/log.h"
#include "support/held_wait.h"
#include "unit/staged/growing_file_fixture.h"

namespace ckptfs::testing {
namespace {

class GrowingFailuresTest : public GrowingFileTest {};
INSTANTIATE_TEST_SUITE_P(Codecs, GrowingFailuresTest, ::testing::Values("none", "auto"));

TEST_P(GrowingFailuresTest, APublishThatFailsIsNoFailure) {
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
            const bool is_published = publish(*log).has_value();
            EXPECT_NE(log->dirty(), is_published) << "not all need each request";
            EXPECT_FALSE(log->failed());
            store.clear_faults();
            add(*log, text, "three");
            ASSERT_TRUE(publish(*log));
            EXPECT_EQ(saved(), text) << size;
            expect_nothing_else_is_left();
        }
    }
}

TEST_P(GrowingFailuresTest, WhatIsWrittenStaysWhileTheStoreIsNotEvenAsked) {
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

TEST_P(GrowingFailuresTest, ACommitThatSomebodyWaitsForTellsItsFailure) {
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

TEST_P(GrowingFailuresTest, DamageInStagingThatFailsAFileIsLogged) {
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

TEST_P(GrowingFailuresTest, WhoSyncsWhileAPublishFailsIsNotToldThat) {
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

TEST_P(GrowingFailuresTest, ACommitWhoseAnswerWasLostIsRecognised) {
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

// OpenFiles has not heard of it, and would take it for a version of another mount that makes the failure good.
TEST_P(GrowingFailuresTest, WhatWasRecognisedIsToldWithTheFailureThatFollows) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    lose(Operation::kPut, 1, true);
    EXPECT_FALSE(publish(*log));
    const std::string first = store.info(kKey).metadata.at(kWriteIdMetadata);
    add(*log, text, "two");
    lose(Operation::kPut, 100);
    EXPECT_FALSE(commit(*log, CommitReason::kFsync));
    EXPECT_TRUE(log->failed());
    EXPECT_EQ(saved(), "one");
    const std::vector<std::string> ids = log->unanswered_commits();
    EXPECT_EQ(std::count(ids.begin(), ids.end(), first), 1);
    EXPECT_EQ(ids.size(), 2U) << "and that of the commit that failed";
}

TEST_P(GrowingFailuresTest, WhatWasRecognisedIsForgottenOnceACommitSucceeds) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    lose(Operation::kPut, 1, true);
    EXPECT_FALSE(publish(*log));
    EXPECT_EQ(log->unanswered_commits().size(), 1U);
    add(*log, text, "two");
    ASSERT_TRUE(publish(*log));
    EXPECT_EQ(saved(), text);
    EXPECT_TRUE(log->unanswered_commits().empty());
}

class GrowingCutTest : public GrowingFileTest {
protected:
    // With this request of it on its way.
    void cut_while_it_is_published(std::uint64_t size, Operation operation, bool fails) {
        std::string text;
        const auto log = grow();
        add(*log, text, "one");
        ASSERT_TRUE(publish(*log));
        add(*log, text, bytes(size));
        store.hold(operation);
        Answer<Result<CommittedObject>> published;
        log->commit(CommitReason::kPublish, published.callback());
        ASSERT_TRUE(store.wait_until_held(operation, 1));
        Answer<Status> cut;
        log->truncate(0, cut.callback());
        ASSERT_TRUE(cut.here(std::chrono::seconds(5)));
        text.clear();
        add(*log, text, "another beginning");
        ASSERT_TRUE(write(*log, 2, "over"));
        ASSERT_TRUE(truncate(*log, 9));
        text.replace(2, 4, "over").resize(9);
        if (fails) {
            lose(operation, 1, operation != Operation::kHead);
        }
        store.release(operation);
        EXPECT_EQ(published.get().has_value(), !fails);
        if (fails && size >= 40 * kMiB) {
            EXPECT_TRUE(log->failed()) << "what was streamed is nowhere else";
            return;
        }
        EXPECT_EQ(log->size(), text.size());
        add(*log, text, "more");
        ASSERT_TRUE(commit(*log));
        EXPECT_TRUE(saved() == text);
        EXPECT_FALSE(log->dirty());
        expect_nothing_else_is_left();
    }
};
INSTANTIATE_TEST_SUITE_P(Codecs, GrowingCutTest, ::testing::Values("none", "auto"));

TEST_P(GrowingCutTest, IsCutToNothingWhileItIsPublished) {
    for (const bool fails : {false, true}) {
        for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB, 40 * kMiB}) {
            const Operation publishes = size < kMiB ? Operation::kPut : Operation::kCompleteUpload;
            cut_while_it_is_published(size, Operation::kHead, fails);
            cut_while_it_is_published(size, publishes, fails);
        }
    }
}

// The first publish after a truncation does, whatever was under way when it came.
TEST_P(GrowingCutTest, ReplacesWhatIsThereAlsoWhereItWasCutWhileItWasPublished) {
    for (const Operation operation : {Operation::kHead, Operation::kPut}) {
        for (const bool fails : {false, true}) {
            std::string text;
            const auto log = grow();
            add(*log, text, "one");
            ASSERT_TRUE(publish(*log));
            add(*log, text, "two");
            store.hold(operation);
            Answer<Result<CommittedObject>> published;
            log->commit(CommitReason::kPublish, published.callback());
            ASSERT_TRUE(store.wait_until_held(operation, 1));
            ASSERT_TRUE(truncate(*log, 0));
            text.clear();
            add(*log, text, "another beginning");
            if (fails) {
                // Its answer is lost.
                lose(operation, 1, true);
            }
            store.release(operation);
            EXPECT_EQ(published.get().has_value(), !fails);
            const bool is_published = saved() == text;
            if (!is_published) {
                store.put_object(kKey, "of another");
            }
            add(*log, text, " and more");
            const auto committed = commit(*log);
            ASSERT_TRUE(committed) << committed.error().message;
            EXPECT_EQ(saved(), text);
        }
    }
}

// Who writes meanwhile may be one whose bytes are published by its own close alone.
TEST_P(GrowingFailuresTest, APublishHoldsWhatWasThereWhenItBegan) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    ASSERT_TRUE(publish(*log));
    add(*log, text, "two");
    store.hold(Operation::kHead);
    Answer<Result<CommittedObject>> published;
    log->commit(CommitReason::kPublish, published.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    add(*log, text, "half of another");
    store.release(Operation::kHead);
    ASSERT_TRUE(published.get());
    EXPECT_EQ(saved(), "onetwo");
    EXPECT_TRUE(log->dirty());
    ASSERT_TRUE(commit(*log));
    EXPECT_EQ(saved(), text);
    expect_nothing_else_is_left();
}

TEST_P(GrowingFailuresTest, TellsThatACommitMayHaveTakenEffect) {
    std::string text;
    const auto log = grow();
    add(*log, text, "one");
    EXPECT_FALSE(log->may_have_committed());
    lose(Operation::kPut, 1, true);
    EXPECT_FALSE(publish(*log));
    EXPECT_TRUE(log->may_have_committed());
    ASSERT_TRUE(publish(*log));
    EXPECT_FALSE(log->may_have_committed());
    lose(Operation::kHead, 1);
    add(*log, text, "two");
    EXPECT_FALSE(publish(*log));
    EXPECT_FALSE(log->may_have_committed()) << "nothing of it was sent";
}

TEST_P(GrowingFailuresTest, AnotherVersionIsNotReplaced) {
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

TEST_P(GrowingFailuresTest, AStreamReplacesNoOtherVersion) {
    for (const std::uint64_t size : {std::uint64_t{1000}, 9 * kMiB}) {
        for (const bool removed : {false, true}) {
            std::string text;
            const auto log = grow();
            add(*log, text, bytes(size));
            ASSERT_TRUE(publish(*log));
            store.reset_calls();
            add(*log, text, bytes(40 * kMiB));
            EXPECT_TRUE(eventually([&] { return store.calls(Operation::kUploadPart) > 0; }));
            save("another version");
            if (removed) {
                store.remove(std::string(kKey), [](const Status&) {});
            }
            const auto result = publish(*log);
            ASSERT_FALSE(result);
            EXPECT_EQ(result.error().errno_value, removed ? ENOENT : ESTALE);
            EXPECT_FALSE(append(*log, "three"));
            EXPECT_EQ(saved(), removed ? "" : "another version");
            EXPECT_TRUE(no_upload_left());
        }
    }
}

TEST_P(GrowingFailuresTest, AStreamThatStartsOverReplacesWhatIsThere) {
    const auto log = grow(save(bytes(1000)));
    std::string text;
    ASSERT_TRUE(truncate(*log, 0));
    add(*log, text, bytes(40 * kMiB));
    save("another version");
    ASSERT_TRUE(publish(*log));
    EXPECT_TRUE(saved() == text);
}

TEST_P(GrowingFailuresTest, WhoTruncatedTheEmptyVersionReplacesWhatIsThere) {
    for (const bool under_way : {false, true}) {
        const auto log = grow();
        Answer<Result<CommittedObject>> empty;
        if (under_way) {
            store.hold(Operation::kPut);
        }
        log->commit(CommitReason::kClose, empty.callback());
        if (under_way) {
            ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
            log->begin_anew();
            store.release(Operation::kPut);
        }
        ASSERT_TRUE(empty.get());
        if (!under_way) {
            log->begin_anew();
        }
        std::string text;
        add(*log, text, "anew");
        save("another version");
        ASSERT_TRUE(commit(*log)) << under_way;
        EXPECT_EQ(saved(), text);
        // From then on it is a version like any other.
        add(*log, text, "more");
        save("another version");
        EXPECT_FALSE(commit(*log));
        EXPECT_EQ(saved(), "another version");
    }
}

TEST_P(GrowingFailuresTest, ADamagedFetchIsNotSentOn) {
    std::string text = bytes(3 * kMiB);
    const auto log = grow(save(text));
    add(*log, text, "one");
    lose(Operation::kGet, 100);
    EXPECT_FALSE(publish(*log));
    EXPECT_FALSE(commit(*log));
    EXPECT_EQ(saved(), bytes(3 * kMiB));
}

TEST_P(GrowingFailuresTest, WithoutADiskItIsWrittenAsAnyOtherFile) {
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

TEST_P(GrowingFailuresTest, AbortLeavesNothingBehind) {
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

TEST_P(GrowingFailuresTest, TheUploadOfACommitIsEndedAfterTheFailureIsTold) {
    for (const Operation operation : {Operation::kUploadPart, Operation::kCompleteUpload}) {
        // The last MiB is sent by the commit.
        for (const std::uint64_t size : {9 * kMiB, 41 * kMiB}) {
            std::atomic<bool> is_told = false;
            HeldWait wait;
            std::string text;
            const auto log = grow();
            log->when_failed([&](const Error&) { is_told = true; });
            log->before_ending([&](std::function<void()> then) {
                EXPECT_TRUE(is_told);
                wait.add(std::move(then));
            });
            add(*log, text, bytes(size));
            lose(operation, 1);
            EXPECT_FALSE(commit(*log, CommitReason::kFsync));
            ASSERT_TRUE(eventually([&] { return wait.asked() > 0; }));
            EXPECT_EQ(store.open_uploads(), 1);
            Answer<Status> aborted;
            log->abort(Error(), aborted.callback());
            EXPECT_FALSE(aborted.here());
            wait.release();
            EXPECT_TRUE(aborted.get());
            EXPECT_EQ(store.open_uploads(), 0);
            EXPECT_FALSE(store.exists(kKey));
        }
    }
}

TEST_P(GrowingFailuresTest, TheUploadOfAPublishThatIsTriedAgainDoesNotWait) {
    std::string text;
    HeldWait wait;
    const auto log = grow();
    log->before_ending([&](std::function<void()> then) { wait.add(std::move(then)); });
    add(*log, text, bytes(20 * kMiB));
    for (const Operation operation : {Operation::kUploadPart, Operation::kCompleteUpload}) {
        lose(operation, 1);
        EXPECT_FALSE(publish(*log));
        EXPECT_TRUE(no_upload_left());
    }
    ASSERT_TRUE(publish(*log));
    EXPECT_TRUE(saved() == text);
    EXPECT_EQ(wait.asked(), 0U);
}

}  // namespace
}  // namespace ckptfs::testing
