// SPDX-License-Identifier: Apache-2.0
// What a writer leaves in the store when it fails, and when that is ended.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "support/held_wait.h"
#include "unit/write/writer_fixture.h"
#include "write/file_writer.h"

namespace ckptfs {
namespace {

using testing::Answer;
using testing::eventually;
using testing::HeldWait;
using testing::kMiB;
using testing::Operation;
using testing::pattern;
using testing::WriterFixture;

class WriterFailuresTest : public ::testing::Test, protected WriterFixture {
protected:
    void TearDown() override {
        EXPECT_TRUE(all_buffers_returned());
        EXPECT_TRUE(no_upload_left());
    }
    std::shared_ptr<FileWriter> open_watched() {
        auto writer = open();
        writer->when_failed([this](const Error&) { is_told_ = true; });
        writer->before_ending([this](std::function<void()> then) {
            EXPECT_TRUE(is_told_);
            wait_.add(std::move(then));
        });
        return writer;
    }

    std::atomic<bool> is_told_ = false;
    HeldWait wait_;
};

TEST_F(WriterFailuresTest, TheUploadIsEndedAfterTheWaitAndItsMemoryIsFreeBefore) {
    const auto writer = open_watched();
    break_next(Operation::kUploadPart, 1);
    static_cast<void>(write(*writer, 0, pattern(40 * kMiB)));
    ASSERT_TRUE(eventually([this] { return wait_.asked() == 1; }));
    EXPECT_TRUE(all_buffers_returned());
    Answer<Status> aborted;
    writer->abort(Error(), aborted.callback());
    EXPECT_FALSE(aborted.here());
    EXPECT_EQ(store.open_uploads(), 1);
    EXPECT_EQ(store.calls(Operation::kAbortUpload), 0);
    wait_.release();
    EXPECT_TRUE(aborted.get());
    EXPECT_EQ(store.open_uploads(), 0);
    EXPECT_EQ(wait_.asked(), 1U);
}

TEST_F(WriterFailuresTest, NothingIsPublishedDuringTheWait) {
    const auto writer = open_watched();
    store.hold(Operation::kUploadPart);
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 1));
    Answer<Result<CommittedObject>> committed;
    writer->commit(CommitReason::kClose, committed.callback());
    Answer<Status> aborted;
    writer->abort(Error(), aborted.callback());
    EXPECT_FALSE(committed.get());
    ASSERT_TRUE(eventually([this] { return wait_.asked() == 1; }));
    store.release(Operation::kUploadPart);
    EXPECT_TRUE(all_buffers_returned());
    EXPECT_EQ(store.calls(Operation::kCompleteUpload), 0);
    EXPECT_EQ(store.open_uploads(), 1);
    wait_.release();
    EXPECT_TRUE(aborted.get());
    EXPECT_FALSE(store.exists("dir/file"));
}

TEST_F(WriterFailuresTest, WhatIsStartedOverDoesNotWait) {
    const auto writer = open_watched();
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    ASSERT_TRUE(eventually([this] { return store.open_uploads() == 1; }));
    ASSERT_TRUE(truncate(*writer, 0));
    EXPECT_TRUE(no_upload_left());
    ASSERT_TRUE(write(*writer, 0, "anew"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/file"), "anew");
    EXPECT_EQ(wait_.asked(), 0U);
}

}  // namespace
}  // namespace ckptfs
