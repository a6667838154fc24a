// SPDX-License-Identifier: Apache-2.0
// What happens to a staged file while something else is under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/held_wait.h"
#include "unit/staged/staged_file_fixture.h"

namespace ckptfs::testing {
namespace {

class StagedOrderTest : public StagedFileTest {
protected:
    // What was posted before has been done then, as every thread is here.
    void finish_tasks() {
        const auto all = std::make_shared<std::latch>(kExecutorThreads + 1);
        for (int i = 0; i < kExecutorThreads; ++i) {
            executor.post([all] { all->arrive_and_wait(); });
        }
        all->arrive_and_wait();
    }
};
INSTANTIATE_TEST_SUITE_P(Codecs, StagedOrderTest, ::testing::Values("none", "auto"));

TEST_P(StagedOrderTest, ATruncationDoesNotForgetThatTheStreamHasFailed) {
    for (const std::uint64_t size : {std::uint64_t{0}, 20 * kMiB}) {
        store.hold(Operation::kUploadPart);
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, bytes(20 * kMiB)));
        ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 1));
        store.inject(Fault{Operation::kUploadPart, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        store.release(Operation::kUploadPart);
        ASSERT_TRUE(eventually([&] { return staged->failed().has_value(); }));
        EXPECT_FALSE(truncate(*staged, size));
        EXPECT_TRUE(staged->failed());
        EXPECT_FALSE(write(*staged, 0, "more"));
        EXPECT_FALSE(commit(*staged));
        EXPECT_TRUE(store.keys().empty());
    }
}

// The file is given up while it is committed, and who notes that waits for a disk: the commit goes on until it is told.
TEST_P(StagedOrderTest, AFailureNamesTheCommitThatWasUnderWay) {
    for (const std::uint64_t size : {kMiB / 2, 20 * kMiB}) {
        const Operation operation = size < kMiB ? Operation::kPut : Operation::kUploadPart;
        const auto staged = open_staged(std::nullopt, Streaming::kNever);
        ASSERT_TRUE(write(*staged, 0, bytes(size)));
        store.hold(operation);
        Answer<Result<CommittedObject>> committed;
        staged->commit(CommitReason::kFsync, committed.callback());
        ASSERT_TRUE(store.wait_until_held(operation, 1));
        std::vector<std::string> told;
        staged->when_failed([&](const Error& /*why*/) {
            told = staged->unanswered_commits();
            store.release(operation);
            EXPECT_TRUE(eventually([&] { return store.exists(kKey); }));
        });
        Answer<Status> aborted;
        staged->abort(failure(EIO, "its writer was killed").value(), aborted.callback());
        EXPECT_TRUE(aborted.get());
        EXPECT_EQ(told, std::vector<std::string>{store.info(kKey).metadata.at(kWriteIdMetadata)});
        store.remove(std::string(kKey), [](const Status&) {});
    }
}

TEST_P(StagedOrderTest, AReadOfOldAndNewBytesSpansACommit) {
    const std::string original = bytes(8 * kMiB);
    std::string text = original;
    const auto staged = open_staged(save(original), Streaming::kNever);
    change(*staged, text, 7 * kMiB, bytes(kMiB, 1));
    store.hold(Operation::kGet);
    Answer<Result<Payload>> answer;
    staged->read(6 * kMiB + kMiB / 2, kMiB, answer.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kGet, 1));
    auto committed = std::async(std::launch::async, [&] { return commit(*staged).has_value(); });
    // What a commit needs of a container it fetches, and may be held, too.
    if (GetParam() == std::string("none")) {
        EXPECT_TRUE(committed.get());
        store.release(Operation::kGet);
    } else {
        store.release(Operation::kGet);
        EXPECT_TRUE(committed.get());
    }
    const Result<Payload> read = answer.get();
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->to_string() == text.substr(6 * kMiB + kMiB / 2, kMiB));
}

// 12 MiB are copied, so that this is an upload, and what is read was not read for it.
TEST_P(StagedOrderTest, AReadWaitsForItsOwnCommitWhoseAnswerIsOnItsWay) {
    std::string text = bytes(16 * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    const std::string before = store.info(kKey).etag;
    change(*staged, text, 12 * kMiB, bytes(4096, 1));
    store.hold_answers(Operation::kCompleteUpload);
    Answer<Result<CommittedObject>> committed;
    staged->commit(CommitReason::kFsync, committed.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    ASSERT_NE(store.info(kKey).etag, before);
    Answer<Result<Payload>> unchanged;
    Answer<Result<Payload>> mixed;
    staged->read(3 * kMiB, kMiB, unchanged.callback());
    staged->read(11 * kMiB + kMiB / 2, kMiB, mixed.callback());
    finish_tasks();
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(committed.get());
    const Result<Payload> one = unchanged.get();
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_TRUE(one->to_string() == text.substr(3 * kMiB, kMiB));
    const Result<Payload> other = mixed.get();
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_TRUE(other->to_string() == text.substr(11 * kMiB + kMiB / 2, kMiB));
}

TEST_P(StagedOrderTest, AReadThatIsOvertakenByACutHasNoZeros) {
    std::string text;
    const auto file = open_staged();
    change(*file, text, kMiB, bytes(kMiB));
    change(*file, text, 0, bytes(kMiB));
    // It waits for memory meanwhile.
    std::vector<Buffer> taken;
    while (std::optional<Buffer> buffer = pool->try_take(MemoryUse::kRead)) {
        taken.push_back(std::move(*buffer));
    }
    Answer<Result<Payload>> read;
    file->read(0, kMiB, read.callback());
    ASSERT_TRUE(truncate(*file, 5000));
    taken.clear();
    const std::string got = read.get().value().to_string();
    EXPECT_TRUE(got == text.substr(0, 5000) || got == text.substr(0, kMiB)) << got.size();
}

TEST_P(StagedOrderTest, AReadOfWhatAnotherMountHasReplacedDoesNotWaitForTheNextCommit) {
    const std::string text = bytes(16 * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    ASSERT_TRUE(write(*staged, 12 * kMiB, bytes(4096, 1)));
    store.put_object(kKey, "what another mount has saved");
    const Result<std::string> read_back = read(*staged, 3 * kMiB, kMiB);
    ASSERT_FALSE(read_back);
    EXPECT_EQ(read_back.error().errno_value, ESTALE);
}

// What was written since lies under a hidden key, and is more than what was copied.
TEST_P(StagedOrderTest, IsGivenUpWhereItsCommittedObjectIsCopiedWhileMoreIsHidden) {
    std::string text = bytes(10 * kMiB);
    CommittedObject object = save(text);
    const auto staged = open_staged(object);
    change(*staged, text, text.size(), bytes(10 * kMiB, 1));
    // Leaves the stream.
    EXPECT_TRUE(read(*staged).value() == text);
    store.put_object("dir/copy", store.content(kKey), store.info(kKey).metadata);
    object.etag = store.info("dir/copy").etag;
    staged->committed_moved("dir/copy", object);
    EXPECT_TRUE(staged->failed());
    EXPECT_FALSE(read(*staged));
    ASSERT_TRUE(abort(*staged));
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"dir/copy", kKey}));
}

class StagedOrphanTest : public StagedFileTest {
protected:
    static Error removed() {
        Error why;
        why.errno_value = ENOENT;
        why.message = "removed";
        return why;
    }
    static Status orphan(FileWriter& staged) {
        Answer<Status> answer;
        staged.orphan(removed(), answer.callback());
        return answer.get();
    }
    // As other mounts see.
    [[nodiscard]] bool is_missed() {
        std::vector<std::string> keys = store.keys();
        Answer<Result<std::vector<OpenUpload>>> uploads;
        store.list_uploads("", uploads.callback());
        const Result<std::vector<OpenUpload>> listed = uploads.get();
        for (const OpenUpload& upload : *listed) {
            keys.push_back(upload.upload.key);
        }
        return std::any_of(keys.begin(), keys.end(),
                           [](const std::string& key) { return parse_hidden_key("", key).has_value(); });
    }
    void expect_nothing_is_left() const {
        EXPECT_EQ(store.keys(), std::vector<std::string>());
        EXPECT_EQ(store.open_uploads(), 0);
    }
};
INSTANTIATE_TEST_SUITE_P(Codecs, StagedOrphanTest, ::testing::Values("none", "auto"));

TEST_P(StagedOrphanTest, HoldsNoMarkerBackAndGoesOn) {
    for (const bool goes_back : {false, true}) {
        std::string text = bytes(30 * kMiB);
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        if (goes_back) {
            change(*staged, text, 20 * kMiB, "changed");
        }
        ASSERT_TRUE(eventually([&] { return is_missed(); }));
        ASSERT_TRUE(orphan(*staged));
        EXPECT_FALSE(is_missed());
        EXPECT_TRUE(read(*staged).value() == text);
        change(*staged, text, text.size(), bytes(20 * kMiB, 1));
        EXPECT_FALSE(is_missed());
        change(*staged, text, 5, "again");
        EXPECT_TRUE(read(*staged).value() == text);
        EXPECT_FALSE(commit(*staged));
        EXPECT_FALSE(is_missed());
        ASSERT_TRUE(abort(*staged));
        expect_nothing_is_left();
    }
}

TEST_P(StagedOrphanTest, GoesOnAsAStream) {
    const std::string text = bytes(50 * kMiB);
    const auto staged = open_staged();
    ASSERT_TRUE(write(*staged, 0, std::string_view(text).substr(0, 30 * kMiB)));
    ASSERT_TRUE(eventually([&] { return is_missed(); }));
    ASSERT_TRUE(orphan(*staged));
    ASSERT_TRUE(write(*staged, 30 * kMiB, std::string_view(text).substr(30 * kMiB)));
    EXPECT_TRUE(eventually([&] { return store.open_uploads() == 1; }));
    EXPECT_FALSE(is_missed());
    EXPECT_TRUE(read(*staged).value() == text);
    ASSERT_TRUE(abort(*staged));
    expect_nothing_is_left();
}

TEST_P(StagedOrphanTest, AnAbortBeforeItIsCopiedLeavesNothingBehind) {
    const std::string text = bytes(30 * kMiB);
    for (const Operation operation : {Operation::kUploadPartCopy, Operation::kCompleteUpload}) {
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        ASSERT_TRUE(eventually([&] { return is_missed(); }));
        store.hold(operation);
        Answer<Status> orphaned;
        staged->orphan(removed(), orphaned.callback());
        ASSERT_TRUE(store.wait_until_held(operation, 1));
        Answer<Status> aborted;
        staged->abort(removed(), aborted.callback());
        store.release(operation);
        EXPECT_TRUE(aborted.get());
        EXPECT_TRUE(orphaned.get());
        expect_nothing_is_left();
    }
}

TEST_P(StagedOrphanTest, IsEndedBeforeItIsAnsweredWhereItCannotBeCopied) {
    const std::string text = bytes(30 * kMiB);
    for (const Operation operation : {Operation::kCompleteUpload, Operation::kUploadPartCopy}) {
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, text));
        ASSERT_TRUE(eventually([&] { return is_missed(); }));
        store.inject(Fault{operation, "", store_error(EIO, "InternalError", 400), 0, 1, false});
        EXPECT_TRUE(orphan(*staged));
        EXPECT_TRUE(staged->failed());
        expect_nothing_is_left();
    }
}

TEST_P(StagedOrphanTest, LeavesNoCopyWhoseAnswerWasLost) {
    const auto staged = open_staged();
    ASSERT_TRUE(write(*staged, 0, bytes(30 * kMiB)));
    ASSERT_TRUE(write(*staged, 20 * kMiB, "changed"));
    lose_the_answer_of_the_next_complete();
    EXPECT_TRUE(orphan(*staged));
    EXPECT_TRUE(staged->failed());
    expect_nothing_is_left();
}

class StagedFailuresTest : public StagedFileTest {
protected:
    // What it leaves in the store when it fails stays until `wait` is released.
    std::shared_ptr<FileWriter> watched(std::shared_ptr<FileWriter> staged) {
        staged->when_failed([this](const Error&) { is_told = true; });
        staged->before_ending([this](std::function<void()> then) {
            EXPECT_TRUE(is_told);
            wait.add(std::move(then));
        });
        return staged;
    }
    // With ranges between them that are copied. `text`: what it holds.
    std::shared_ptr<FileWriter> changed_in_two_places(std::string& text) {
        text = bytes(40 * kMiB);
        auto staged = open_staged(save(text), Streaming::kNever);
        change(*staged, text, 5, "changed");
        change(*staged, text, 25 * kMiB, "changed");
        return staged;
    }
    void expect_all_goes_after_the_wait(FileWriter& staged) {
        Answer<Status> aborted;
        staged.abort(Error(), aborted.callback());
        ASSERT_TRUE(eventually([this] { return wait.asked() > 0; }));
        EXPECT_FALSE(aborted.here(std::chrono::milliseconds(50)));
        EXPECT_EQ(store.calls(Operation::kAbortUpload) + store.calls(Operation::kRemove), 0);
        wait.release();
        EXPECT_TRUE(aborted.get());
        EXPECT_EQ(store.open_uploads(), 0);
        EXPECT_TRUE(store.keys().empty());
    }

    std::atomic<bool> is_told = false;
    HeldWait wait;
};
INSTANTIATE_TEST_SUITE_P(Codecs, StagedFailuresTest, ::testing::Values("none", "auto"));

TEST_P(StagedFailuresTest, AStreamIsEndedAfterTheFailureIsTold) {
    const auto staged = watched(open_staged());
    break_next(Operation::kUploadPart, 1);
    static_cast<void>(write(*staged, 0, bytes(40 * kMiB)));
    EXPECT_FALSE(commit(*staged));
    EXPECT_EQ(store.open_uploads(), 1);
    expect_all_goes_after_the_wait(*staged);
}

TEST_P(StagedFailuresTest, TheUploadOfACommitIsEndedAfterTheFailureIsTold) {
    for (const Operation operation : {Operation::kUploadPart, Operation::kCompleteUpload}) {
        HeldWait again;
        const auto staged = open_staged(std::nullopt, Streaming::kNever);
        std::atomic<bool> told = false;
        staged->when_failed([&told](const Error&) { told = true; });
        staged->before_ending([&](std::function<void()> then) {
            EXPECT_TRUE(told);
            again.add(std::move(then));
        });
        break_next(operation);
        ASSERT_TRUE(write(*staged, 0, bytes(40 * kMiB)));
        EXPECT_FALSE(commit(*staged));
        ASSERT_TRUE(eventually([&] { return again.asked() > 0; }));
        EXPECT_EQ(store.open_uploads(), 1);
        again.release();
        EXPECT_TRUE(no_upload_left());
        EXPECT_TRUE(abort(*staged));
        EXPECT_TRUE(store.keys().empty());
    }
}

TEST_P(StagedFailuresTest, AHiddenObjectIsRemovedAfterTheFailureIsTold) {
    const auto staged = watched(open_staged());
    ASSERT_TRUE(write(*staged, 0, bytes(40 * kMiB)));
    ASSERT_TRUE(write(*staged, 20 * kMiB, "changed"));
    EXPECT_EQ(store.keys().size(), 1U);
    expect_all_goes_after_the_wait(*staged);
}

TEST_P(StagedFailuresTest, AHiddenObjectWhoseAnswerWasLostIsRemoved) {
    for (const bool goes_back : {false, true}) {
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, bytes(40 * kMiB)));
        // Where nothing was sent before, its own key is written.
        ASSERT_TRUE(eventually([&] { return store.open_uploads() > 0; }));
        lose_the_answer_of_the_next_complete();
        if (goes_back) {
            EXPECT_FALSE(write(*staged, 20 * kMiB, "changed"));
        }
        EXPECT_FALSE(commit(*staged));
        ASSERT_TRUE(abort(*staged));
        EXPECT_TRUE(store.keys().empty()) << goes_back;
    }
}

// Another client may have replaced it since.
TEST_P(StagedFailuresTest, APublishThatMayHaveBeenMadeIsNotMadeAgainWithoutCopies) {
    std::string text;
    const auto staged = changed_in_two_places(text);
    Error lost = store_error(EIO, "", 0);
    lost.outcome_unknown = true;
    store.inject(Fault{Operation::kCompleteUpload, "", lost, 0, 1, false});
    EXPECT_FALSE(commit(*staged));
    EXPECT_FALSE(saved() == text);
    EXPECT_TRUE(abort(*staged));
}

// Nor is it known of a copy whether it was made: that publishes nothing.
TEST_P(StagedFailuresTest, ACopyOfUnknownOutcomeIsMadeByUploading) {
    std::string text;
    const auto staged = changed_in_two_places(text);
    Error refused = store_error(EOPNOTSUPP, "NotImplemented", 501);
    refused.outcome_unknown = true;
    store.inject(Fault{Operation::kUploadPartCopy, "", refused, 0, 100, false});
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
}

TEST_P(StagedFailuresTest, AnUploadThatIsTriedWithoutCopiesDoesNotWait) {
    std::string text;
    const auto staged = watched(changed_in_two_places(text));
    store.inject(Fault{Operation::kUploadPartCopy, "", store_error(EOPNOTSUPP, "NotImplemented", 501), 0, 100, false});
    ASSERT_TRUE(commit(*staged));
    EXPECT_TRUE(saved() == text);
    EXPECT_TRUE(no_upload_left());
    EXPECT_EQ(wait.asked(), 0U);
}

}  // namespace
}  // namespace ckptfs::testing
