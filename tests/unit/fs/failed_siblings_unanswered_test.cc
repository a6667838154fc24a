// SPDX-License-Identifier: Apache-2.0
// What is in the bucket of a file that has failed is no success of it.
#include <future>

#include "failed_siblings_fixture.h"

namespace ckptfs::fs {
namespace {

// For good: that to the look at the key as well.
TEST_F(FailedSiblingsTest, WhatACommitLeavesWhoseAnswerWasLostMakesNothingGood) {
    Error lost = store_error(EIO, "", 0);
    lost.outcome_unknown = true;
    for (const int flags : {O_WRONLY, O_RDWR, O_WRONLY | O_APPEND}) {
        const std::string name = "shard" + std::to_string(flags);
        const HandleId handle = create(name, flags)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "half"));
        store.inject({Operation::kPut, "p/" + name, lost, 0, 1, true});
        EXPECT_EQ(errno_of(fsync(handle)), EIO);
        EXPECT_EQ(errno_of(close(handle)), EIO);
        EXPECT_EQ(store.content("p/" + name), "half");
        EXPECT_TRUE(store.exists("p/.ckptfs/failed/" + name));
        EXPECT_EQ(errno_of(commit()), EIO);
        store.put_object("p/" + name, "what another mount has saved since");
        EXPECT_TRUE(commit());
    }
}

// Another thread has asked for it: nobody waits for its answer any more.
TEST_F(FailedSiblingsTest, WhatIsPublishedAfterItsWriterWasKilledMakesNothingGood) {
    for (const int flags : {O_WRONLY, O_RDWR}) {
        for (const bool is_large : {false, true}) {
            const Operation operation = is_large ? Operation::kCompleteUpload : Operation::kPut;
            const std::string name = "shard" + std::to_string(flags) + (is_large ? "large" : "");
            const HandleId handle = create(name, flags)->opened.handle;
            const std::string block(std::size_t{1} << 20, 'a');
            for (std::uint64_t number = 0; number < (is_large ? 20U : 1U); ++number) {
                ASSERT_TRUE(write(handle, number << 20, block));
            }
            store.hold(operation);
            auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
            ASSERT_TRUE(store.wait_until_held(operation, 1));
            processes.killed = kProcess;
            auto killed = std::async(std::launch::async, [&] { return flush(handle); });
            EXPECT_FALSE(synced.get());
            store.release(operation);
            static_cast<void>(killed.get());
            static_cast<void>(release(handle));
            processes.killed = 0;
            EXPECT_EQ(errno_of(commit()), EIO) << name;
            save(name, "written again");
            EXPECT_TRUE(commit()) << name;
            ASSERT_TRUE(unlink(".metadata"));
        }
    }
}

TEST_F(FailedSiblingsTest, WhatTheSecondAttemptLeavesWhoseAnswerWasLostMakesNothingGood) {
    fail_shard();
    const HandleId handle = create("shard")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    Error lost = store_error(EIO, "", 0);
    lost.outcome_unknown = true;
    store.inject({Operation::kPut, "p/shard", lost, 0, 1, true});
    EXPECT_EQ(errno_of(fsync(handle)), EIO);
    EXPECT_EQ(errno_of(close(handle)), EIO);
    EXPECT_EQ(store.content("p/shard"), "half");
    EXPECT_EQ(errno_of(commit()), EIO);
}

// The record of a failure, whose answer was lost, is this mount's to remove. One of another mount in its place is not.
TEST_F(FailedSiblingsTest, ARecordWithoutAnAnswerIsRemovedUnlessAnotherMountHasReplacedIt) {
    for (const bool is_replaced : {false, true}) {
        Error lost = store_error(EIO, "", 0);
        lost.outcome_unknown = true;
        store.inject({Operation::kPut, kRecord, lost, 0, 1, true});
        fail_shard();
        ASSERT_TRUE(store.exists(kRecord));
        if (is_replaced) {
            store.put_object(kRecord, "host: node7\nreason: no room\n");
        }
        save("shard", "written again");
        EXPECT_EQ(store.exists(kRecord), is_replaced);
        ASSERT_TRUE(unlink("shard"));
    }
}

// The store has not taken the later one.
TEST_F(FailedSiblingsTest, AnEarlierRecordIsRemovedWithALaterOneThatWasNotAnswered) {
    fail_shard();
    store.put_object("p/shard", "what another mount has saved since");
    clock.advance(Milliseconds(2000));
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 20, false});
    const Result<OpenedFile> opened = open(lookup("shard")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened && write(opened->handle, 0, "content"));
    EXPECT_EQ(errno_of(close(opened->handle)), EIO);
    for (int tries = 0; tries < 12; ++tries) {
        clock.advance(Milliseconds(60'000));
        tick();
    }
    ASSERT_TRUE(store.exists(kRecord));
    save("shard", "written again");
    EXPECT_FALSE(store.exists(kRecord));
    EXPECT_TRUE(commit());
}

// This mount's own may be in the bucket, and cannot be looked at yet.
TEST_F(FailedSiblingsTest, ARecordOfAnotherMountCountsWhileItIsNotKnownWhoseItIs) {
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 1, false});
    fail_shard();
    store.inject({Operation::kGet, kRecord, store_error(EIO, "SlowDown", 503), 0, 1, false});
    save("shard", "written again");
    store.put_object(kRecord, "host: node7\nreason: no room\netag-before: " + store.info("p/shard").etag + "\n");
    EXPECT_EQ(errno_of(commit()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
    tick();
    EXPECT_TRUE(store.exists(kRecord));
}

TEST_F(FailedSiblingsTest, WhatACommitLeavesAfterItsRecordOnAnotherMountMakesNothingGood) {
    store.put_object(kRecord, "host: node7\netag-before: \nunanswered: id 1\n");
    store.advance_clock(Milliseconds(2000));
    store.put_object("p/shard", "half", {{kWriteIdMetadata, "id 1"}});
    EXPECT_EQ(errno_of(commit()), EIO);
}

}  // namespace
}  // namespace ckptfs::fs
