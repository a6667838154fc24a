// SPDX-License-Identifier: Apache-2.0
// What other mounts have acknowledged by their disks, and commits and renames that wait for it.
#include "fs/gate/unsent_elsewhere.h"

#include <chrono>
#include <future>

#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/store_limits.h"
#include "file_system_fixture.h"
#include "staged/hidden_key.h"
#include "support/sync_store.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

const std::string kDisk = "01234567-89ab-4cde-8f01-23456789abcd";
const std::string kOwnDisk = "11234567-89ab-4cde-8f01-23456789abcd";

class UnsentElsewhereTest : public FileSystemTest {
protected:
    // The store's clock is the mount's.
    UnsentElsewhereTest() {
        store.advance_clock(std::chrono::duration_cast<Milliseconds>(begun - std::chrono::system_clock::now()));
    }
    std::string tell(const std::string& directory, const std::string& disk = kDisk) {
        std::string key = "p/.ckptfs/unsent/" + directory + disk + "-1700000000-" + random_uuid();
        store.put_object(key, "node7");
        return key;
    }
    void take_back(const std::string& key) { ASSERT_TRUE(SyncStore(store).remove(key)); }
    std::future<Status> commit() {
        save("m.tmp", "metadata");
        return std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
    }
    static bool waits(const std::future<Status>& change) {
        return change.wait_for(kForAWhile) == std::future_status::timeout;
    }
    // Once the commit has looked it looks again and again.
    bool has_looked(int lists_before) {
        return eventually([&] { return store.calls(Operation::kList) >= lists_before + 6; });
    }
    // At `begun`.
    void another_fails() { another_fails_in(""); }
    void another_fails_in(const std::string& directory) {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(begun.time_since_epoch()).count();
        store.put_object("p/.ckptfs/failed/" + directory + "shard",
                         "host: node7\nreason: no room\netag-before: \nbegan: " + std::to_string(seconds) + "\n");
    }
    Status may_mark(const AskedBy& by, const std::string& marker = "p/.metadata") {
        return answer<void>([&](auto reply) { fs->may_mark(marker, by, reply); });
    }
    std::vector<std::uint64_t> announced(const std::string& marker) {
        return answer<std::vector<std::uint64_t>>([&](auto reply) { fs->announced_by_others(marker, kOwnDisk, reply); })
            .value();
    }

    const WallTime begun = clock.wall_now();
};

TEST_F(UnsentElsewhereTest, AMarkerWaitsForIt) {
    const std::string told = tell("");
    auto committed = commit();
    EXPECT_TRUE(waits(committed));
    EXPECT_FALSE(store.exists("p/.metadata"));
    take_back(told);
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(store.exists("p/.metadata"));
}

// A mount that writes there all the time must not hold it back for ever.
TEST_F(UnsentElsewhereTest, AMarkerDoesNotWaitForWhatBeginsMeanwhile) {
    const std::string told = tell("");
    auto committed = commit();
    ASSERT_TRUE(has_looked(store.calls(Operation::kList)));
    tell("");
    take_back(told);
    EXPECT_TRUE(committed.get());
}

TEST_F(UnsentElsewhereTest, AMarkerWaitsForWhatIsBelowItsDirectory) {
    const std::string told = tell("step/part/");
    auto committed = commit();
    EXPECT_TRUE(waits(committed));
    take_back(told);
    EXPECT_TRUE(committed.get());
}

TEST_F(UnsentElsewhereTest, AMarkerDoesNotWaitForWhatIsBeside) {
    ASSERT_TRUE(mkdir("step"));
    tell("step2/");
    const Result<Entry> step = lookup("step");
    const HandleId marker = create(".metadata", O_WRONLY, step->node)->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata"));
    EXPECT_TRUE(close(marker));
    EXPECT_TRUE(store.exists("p/step/.metadata"));
}

TEST_F(UnsentElsewhereTest, WhatHasFailedMeanwhileIsSeen) {
    const std::string told = tell("");
    auto committed = commit();
    EXPECT_TRUE(waits(committed));
    store.put_object("p/.ckptfs/failed/shard", "host: node7\nreason: no room\netag-before: \n");
    take_back(told);
    EXPECT_EQ(errno_of(committed.get()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
}

TEST_F(UnsentElsewhereTest, TheWaitEnds) {
    tell("");
    auto committed = commit();
    ASSERT_TRUE(has_looked(store.calls(Operation::kList)));
    clock.advance(write_environment.retry_for);
    const Status refused = committed.get();
    EXPECT_EQ(errno_of(refused), EIO);
    EXPECT_NE(refused.error().message.find("a mount on node7 has acknowledged by its disk are not in the bucket yet"),
              std::string::npos)
        << refused.error().message;
    EXPECT_FALSE(store.exists("p/.metadata"));
}

TEST_F(UnsentElsewhereTest, AMountThatIsNotHeardOfRefusesAMarkerAtOnceUntilItIsForgotten) {
    tell("");
    clock.advance_wall(kUnsentCountsFor + std::chrono::seconds(90));
    const Status refused = commit().get();
    EXPECT_EQ(errno_of(refused), EIO);
    EXPECT_NE(refused.error().message.find("last heard of 16 min ago"), std::string::npos) << refused.error().message;
    clock.advance_wall(write_environment.config.failed_sibling_ttl);
    EXPECT_TRUE(commit().get());
}

TEST_F(UnsentElsewhereTest, ADirectoryIsRenamedOnceNothingOfItIsUnsent) {
    ASSERT_TRUE(mkdir("step"));
    const std::string told = tell("step/");
    auto renamed = std::async(std::launch::async, [this] { return rename("step", "done"); });
    EXPECT_TRUE(waits(renamed));
    EXPECT_FALSE(store.exists("p/done/"));
    take_back(told);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(store.exists("p/done/"));
}

// The permission to list may come back, as with credentials that are renewed.
TEST_F(UnsentElsewhereTest, ADirectoryIsNotRenamedWhereItMayNotLook) {
    ASSERT_TRUE(mkdir("step"));
    const std::string told = tell("step/");
    store.inject({Operation::kList, "p/.ckptfs/unsent/step/", store_error(EACCES, "AccessDenied", 403), 0, 2, false});
    auto renamed = std::async(std::launch::async, [this] { return rename("step", "done"); });
    EXPECT_TRUE(waits(renamed));
    take_back(told);
    EXPECT_TRUE(renamed.get());
    store.inject({Operation::kList, "p/.ckptfs/unsent/done/", store_error(EACCES, "AccessDenied", 403), 0, 9, false});
    const int lists = store.calls(Operation::kList);
    auto refused = std::async(std::launch::async, [this] { return rename("done", "step"); });
    ASSERT_TRUE(eventually([&] { return store.calls(Operation::kList) >= lists + 2; }));
    clock.advance(write_environment.retry_for);
    EXPECT_EQ(errno_of(refused.get()), EACCES);
    EXPECT_FALSE(store.exists("p/step/"));
}

TEST_F(UnsentElsewhereTest, ADirectoryIsNotRenamedWhereItMayNotListWhatHasFailedElsewhere) {
    ASSERT_TRUE(mkdir("step"));
    another_fails_in("step/");
    store.inject({Operation::kList, "p/.ckptfs/failed/step/", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(errno_of(rename("step", "done")), EACCES);
    EXPECT_TRUE(store.exists("p/step/"));
    EXPECT_TRUE(rename("step", "done"));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/done/shard"));
}

TEST_F(UnsentElsewhereTest, TheWaitEndsWithTheMount) {
    ASSERT_TRUE(mkdir("step"));
    tell("step/");
    store.inject({Operation::kList, "p/.ckptfs/unsent/step/", store_error(ECANCELED, "", 0), 0, 9, false});
    EXPECT_EQ(errno_of(rename("step", "done")), ECANCELED);
}

// --- before a marker is sent that a disk has acknowledged

TEST_F(UnsentElsewhereTest, AMarkerIsNotSentBeforeIt) {
    const std::string told = tell("");
    const Status later = may_mark({kOwnDisk, begun});
    EXPECT_EQ(errno_of(later), EIO);
    EXPECT_TRUE(later.error().retryable);
    take_back(told);
    EXPECT_TRUE(may_mark({kOwnDisk, begun}));
}

TEST_F(UnsentElsewhereTest, AMarkerIsSentThoughItsOwnDiskHasMore) {
    tell("", kOwnDisk);
    EXPECT_TRUE(may_mark({kOwnDisk, begun}));
    EXPECT_FALSE(may_mark({kDisk, begun}));
}

// Else two mounts could wait for each other.
TEST_F(UnsentElsewhereTest, AMarkerIsSentThoughOthersHaveBegunMore) {
    tell("", kOwnDisk);
    tell("step2/");
    const std::string told = tell("step/");
    const AskedBy by{kOwnDisk, begun, announced("p/step/.metadata")};
    EXPECT_EQ(by.awaited->size(), 1U);
    tell("step/");
    EXPECT_FALSE(may_mark(by, "p/step/.metadata"));
    take_back(told);
    EXPECT_TRUE(may_mark(by, "p/step/.metadata"));
    EXPECT_FALSE(may_mark({kOwnDisk, begun, announced("p/step/.metadata")}, "p/step/.metadata"));
}

// The permit to list may come back.
TEST_F(UnsentElsewhereTest, WhereItMayNotLookAtWhatIsToldNoMarkerIsAcknowledgedOrSent) {
    tell("");
    const Fault refused{Operation::kList, "p/.ckptfs/unsent/", store_error(EACCES, "AccessDenied", 403), 0, 1, false};
    store.inject(refused);
    EXPECT_EQ(errno_of(answer<std::vector<std::uint64_t>>(
                  [&](auto reply) { fs->announced_by_others("p/.metadata", kOwnDisk, reply); })),
              EACCES);
    store.inject(refused);
    const Status later = may_mark({kOwnDisk, begun});
    ASSERT_FALSE(later);
    EXPECT_TRUE(later.error().retryable);
}

TEST_F(UnsentElsewhereTest, WhereTheStoreDoesNotTellNoMarkerIsAcknowledged) {
    store.inject({Operation::kList, "p/.ckptfs/unsent/", store_error(EIO, "InternalError", 500), 0, 1, false});
    const auto told = answer<std::vector<std::uint64_t>>(
        [&](auto reply) { fs->announced_by_others("p/.metadata", kOwnDisk, reply); });
    EXPECT_EQ(errno_of(told), EIO);
}

// After an outage others need a moment to tell again.
TEST_F(UnsentElsewhereTest, AMarkerIsGivenUpWhereAMountIsNotHeardOfAnyMore) {
    tell("");
    clock.advance_wall(kUnsentCountsFor + std::chrono::minutes(1));
    for (auto looked = std::chrono::minutes(0); looked < kUnsentCountsFor; looked += kUnsentToldEvery) {
        EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
        clock.advance(looked + kUnsentToldEvery < kUnsentCountsFor ? Milliseconds(kUnsentToldEvery)
                                                                   : kUnsentToldEvery - std::chrono::seconds(1));
    }
    EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
    clock.advance(std::chrono::seconds(1));
    const Status never = may_mark({kOwnDisk, begun});
    EXPECT_EQ(errno_of(never), EIO);
    EXPECT_FALSE(never.error().retryable);
}

// The other mount could not reach it, either.
TEST_F(UnsentElsewhereTest, TimeInWhichTheStoreCannotBeAskedIsNotOneInWhichAMountIsNotHeardOf) {
    tell("");
    clock.advance_wall(kUnsentCountsFor + std::chrono::minutes(1));
    EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
    clock.advance(kUnsentCountsFor);
    EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
    for (auto looked = std::chrono::minutes(0); looked < kUnsentCountsFor; looked += kUnsentToldEvery) {
        EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
        clock.advance(kUnsentToldEvery);
    }
    EXPECT_FALSE(may_mark({kOwnDisk, begun}).error().retryable);
}

// The disk that acknowledged the marker may have been away for long, or its backlog was.
TEST_F(UnsentElsewhereTest, WhatCountedAtTheAcknowledgementIsNotForgottenByItsAge) {
    const std::string object = tell("");
    AskedBy by{kOwnDisk, begun};
    by.awaited = announced("p/.metadata");
    clock.advance_wall(std::chrono::hours(2));
    const Status waits = may_mark(by);
    EXPECT_EQ(errno_of(waits), EIO);
    EXPECT_TRUE(waits.error().retryable);
    for (auto looked = std::chrono::minutes(0); looked < kUnsentCountsFor; looked += kUnsentToldEvery) {
        clock.advance(kUnsentToldEvery);
        static_cast<void>(may_mark(by));
    }
    EXPECT_FALSE(may_mark(by).error().retryable);
    take_back(object);
    EXPECT_TRUE(may_mark(by));
}

// A marker that another attempt on the same file was begun after waits for the first.
TEST_F(UnsentElsewhereTest, ALaterAttemptDoesNotHideThatAFileHadFailed) {
    another_fails();
    clock.advance(std::chrono::minutes(5));
    clock.advance_wall(std::chrono::minutes(5));
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const HandleId handle = create("shard")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    EXPECT_EQ(errno_of(close(handle)), EIO);
    const Status never = may_mark({kOwnDisk, begun + std::chrono::seconds(10)});
    EXPECT_EQ(errno_of(never), EIO);
    EXPECT_FALSE(never.error().retryable);
}

// Another mount has saved the file since: the marker is that of a whole checkpoint.
TEST_F(UnsentElsewhereTest, AFailureThatWasMadeGoodLendsItsBeginningToNoLaterOne) {
    another_fails();
    store.put_object("p/shard", "good");
    store.advance_clock(std::chrono::minutes(5));
    clock.advance(std::chrono::minutes(5));
    clock.advance_wall(std::chrono::minutes(5));
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const Result<OpenedFile> opened = open(lookup("shard")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened && write(opened->handle, 0, "content"));
    EXPECT_EQ(errno_of(close(opened->handle)), EIO);
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/shard"));
    EXPECT_TRUE(may_mark({kOwnDisk, begun + std::chrono::seconds(10)}));
}

TEST_F(UnsentElsewhereTest, AMarkerIsGivenUpWhereAFileHasFailed) {
    store.put_object("p/.ckptfs/failed/shard", "host: node7\nreason: no room\netag-before: \n");
    const Status never = may_mark({kOwnDisk, begun});
    EXPECT_EQ(errno_of(never), EIO);
    EXPECT_FALSE(never.error().retryable);
}

TEST_F(UnsentElsewhereTest, AMarkerIsSentThoughAFileThatWasBegunLaterHasFailed) {
    const auto later = kTimesDifferBy + std::chrono::seconds(2);
    store.advance_clock(later);
    clock.advance_wall(later);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>((begun + later).time_since_epoch()).count();
    const std::string record = "host: node7\nreason: no room\netag-before: \n";
    store.put_object("p/.ckptfs/failed/shard", record + "began: " + std::to_string(seconds) + "\n");
    EXPECT_TRUE(may_mark({kOwnDisk, begun}));
    EXPECT_FALSE(may_mark({kOwnDisk, clock.wall_now()}));
    // Its mount may have been killed before, and told others once it was made again.
    store.put_object("p/.ckptfs/failed/shard", record + "began: " + std::to_string(seconds - 3) + "\n");
    EXPECT_FALSE(may_mark({kOwnDisk, begun}));
    store.put_object("p/.ckptfs/failed/shard", record);
    EXPECT_FALSE(may_mark({kOwnDisk, begun})) << "it may have begun before";
}

TEST_F(UnsentElsewhereTest, AMarkerWaitsForAnUploadOfAnotherMount) {
    CreateUploadRequest request;
    request.key = "p/shard";
    const UploadId upload = *SyncStore(store).create_upload(std::move(request));
    ASSERT_TRUE(SyncStore(store).upload_part({upload, 1, Payload::from_string("part"), 0}));
    const Status later = may_mark({kOwnDisk, begun});
    EXPECT_FALSE(later);
    EXPECT_TRUE(later.error().retryable);
    // It was begun later.
    EXPECT_TRUE(may_mark({kOwnDisk, begun - kTimesDifferBy - std::chrono::minutes(1)}));
    ASSERT_TRUE(SyncStore(store).abort_upload(upload));
    EXPECT_TRUE(may_mark({kOwnDisk, begun}));
}

TEST_F(UnsentElsewhereTest, AMarkerIsNotGivenUpForAStoreThatDoesNotAnswer) {
    for (const std::string place : {"p/.ckptfs/unsent/", "p/.ckptfs/failed/"}) {
        store.inject({Operation::kList, place, store_error(EIO, "InternalError", 500), 0, 1, false});
        const Status later = may_mark({kOwnDisk, begun});
        EXPECT_FALSE(later);
        EXPECT_TRUE(later.error().retryable) << place;
    }
    store.put_object("p/.ckptfs/failed/shard", "host: node7\nreason: no room\netag-before: \n");
    for (const Operation operation : {Operation::kHead, Operation::kGet}) {
        store.inject({operation, "", store_error(EIO, "InternalError", 500), 0, 1, false});
        EXPECT_TRUE(may_mark({kOwnDisk, begun}).error().retryable);
    }
}

// --- what this mount tells

TEST(ToldAsUnsent, WhatAMarkerDependsOn) {
    const WriteConfig config;
    EXPECT_EQ(told_as_unsent("p/", "p/step/shard", config), "p/step/shard");
    EXPECT_EQ(told_as_unsent("p/", "p/step/.metadata.tmp", config), "p/step/.metadata.tmp");
    EXPECT_EQ(told_as_unsent("p/", "p/step/.metadata", config), "");
    EXPECT_EQ(told_as_unsent("p/", "p/step/", config), "");
    EXPECT_EQ(told_as_unsent("p/", "p/step/train.log", config), "");
    const std::string hidden = new_hidden_key({"p/", random_uuid()}, "p/step/shard");
    EXPECT_EQ(told_as_unsent("p/", hidden, config), "p/step/shard");
}

TEST(ToldAtOnce, IsWhatMountsTellEachOther) {
    EXPECT_TRUE(is_told_at_once("p/", "p/.ckptfs/failed/step/shard"));
    EXPECT_TRUE(is_told_at_once("p/", "p/.ckptfs/renames/x"));
    EXPECT_FALSE(is_told_at_once("p/", new_hidden_key({"p/", random_uuid()}, "p/step/shard")));
    EXPECT_FALSE(is_told_at_once("p/", "p/step/shard"));
    EXPECT_FALSE(is_told_at_once("p/", "p/step/.ckptfs/failed/shard"));
}

}  // namespace
}  // namespace ckptfs::fs
