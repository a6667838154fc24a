// SPDX-License-Identifier: Apache-2.0
// What happens to a staged file while something else is under way.
#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <latch>
#include <memory>
#include <string>

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

TEST_P(StagedOrderTest, AReadOfWhatAnotherMountHasReplacedDoesNotWaitForTheNextCommit) {
    const std::string text = bytes(16 * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    ASSERT_TRUE(write(*staged, 12 * kMiB, bytes(4096, 1)));
    store.put_object(kKey, "what another mount has saved");
    const Result<std::string> read_back = read(*staged, 3 * kMiB, kMiB);
    ASSERT_FALSE(read_back);
    EXPECT_EQ(read_back.error().errno_value, ESTALE);
}

}  // namespace
}  // namespace ckptfs::testing
