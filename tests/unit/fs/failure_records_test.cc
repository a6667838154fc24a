// SPDX-License-Identifier: Apache-2.0
// For how long the records of files that failed on other mounts count, and stay.
#include <chrono>

#include "file_system_fixture.h"
#include "fs/failures/failed_siblings.h"
#include "support/sync_store.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr const char* kRecord = "p/.ckptfs/failed/step/shard";
constexpr const char* kMoved = "p/.ckptfs/failed/done/shard";

class FailureRecordsTest : public FileSystemTest {
protected:
    FailureRecordsTest() {
        turn_store_to(-hours(48));
        step = mkdir("step")->node;
    }
    // By the clock of the mounts.
    void turn_store_to(Milliseconds time) {
        const auto now = std::chrono::system_clock::now() + offset;
        const auto by = std::chrono::floor<Milliseconds>(clock.wall_now() + time - now);
        store.advance_clock(by);
        offset += by;
    }
    void fail_elsewhere(Milliseconds age,
                        const std::string& content = "host: node7\nreason: no room\netag-before: \n") {
        turn_store_to(-age);
        store.put_object(kRecord, content);
        turn_store_to(Milliseconds(0));
    }
    void pass(Milliseconds time) {
        clock.advance(time);
        clock.advance_wall(time);
        store.advance_clock(time);
        offset += time;
    }
    // Other mounts cannot be told of it before the store recovers.
    void deny_records() {
        for (const char* record : {kRecord, kMoved}) {
            store.inject({Operation::kPut, record, store_error(EIO, "InternalError", 500), 0, 100, false});
        }
    }
    void recover() {
        store.clear_faults();
        clock.advance(FailedSiblings::kTick);
        timer.run(FailedSiblings::kTick);
    }
    void make_anew(const std::string& directory) {
        ASSERT_TRUE(SyncStore(store).remove(directory));
        store.put_object(directory, "");
    }
    void deny_shard() {
        store.inject({Operation::kPut, "p/step/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    }
    void fail_here() {
        deny_shard();
        const HandleId handle = create("shard", O_WRONLY, step)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "content"));
        EXPECT_EQ(errno_of(close(handle)), EIO);
    }
    // On another mount, what is there now.
    void fail_to_replace() {
        store.put_object(kRecord, "host: node7\netag-before: " + store.info("p/step/shard").etag + "\n");
    }
    // On mounts with this --failed-sibling-ttl.
    int commit(Milliseconds ttl, NodeId directory) {
        write_environment.config.failed_sibling_ttl = ttl;
        const HandleId marker = create("m.tmp", O_WRONLY, directory)->opened.handle;
        EXPECT_TRUE(write(marker, 0, "metadata") && close(marker));
        return errno_of(rename("m.tmp", ".metadata", 0, directory));
    }

    Milliseconds offset{0};
    NodeId step = 0;
};

TEST_F(FailureRecordsTest, WhatHasExpiredHereCountsWhereItHasNot) {
    fail_elsewhere(minutes(2));
    EXPECT_EQ(commit(minutes(1), step), 0);
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_EQ(commit(hours(1), step), EIO);
}

TEST_F(FailureRecordsTest, WhatIsOlderThanADayIsRemoved) {
    fail_elsewhere(hours(25));
    EXPECT_EQ(commit(hours(48), step), EIO);
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_EQ(commit(minutes(1), step), 0);
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
}

TEST_F(FailureRecordsTest, OthersAreNotToldOfWhatFailedBeforeTheStoreTakesTheRecord) {
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 1, false});
    fail_here();
    EXPECT_EQ(fs->statistics().failures_untold, 1U);
    clock.advance(FailedSiblings::kTick);
    timer.run(FailedSiblings::kTick);
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord) && fs->statistics().failures_untold == 0; }));
}

TEST_F(FailureRecordsTest, WhatOthersCannotBeToldOfIsNotWaitedForAfterItsTime) {
    store.inject({Operation::kPut, kRecord, store_error(EACCES, "AccessDenied", 403), 0, 100, false});
    fail_here();
    clock.advance(WriteConfig().failed_sibling_ttl);
    timer.run(FailedSiblings::kTick);
    EXPECT_EQ(fs->statistics().failures_untold, 1U);
    clock.advance(Milliseconds(1));
    timer.run(FailedSiblings::kTick);
    EXPECT_EQ(fs->statistics().failures_untold, 0U);
}

TEST_F(FailureRecordsTest, WhatWasMadeGoodIsRemoved) {
    fail_elsewhere(minutes(2));
    store.put_object("p/step/shard", "what another mount has saved since");
    EXPECT_EQ(commit(hours(1), step), 0);
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
}

TEST_F(FailureRecordsTest, WhatHasExpiredHereMovesWithItsDirectory) {
    fail_elsewhere(minutes(2));
    write_environment.config.failed_sibling_ttl = minutes(1);
    ASSERT_TRUE(rename("step", "done"));
    EXPECT_TRUE(eventually([&] { return store.exists(kMoved) && !store.exists(kRecord); }));
    const NodeId done = lookup("done")->node;
    EXPECT_EQ(commit(minutes(1), done), 0) << "the rename makes it no younger";
    EXPECT_EQ(commit(hours(1), done), EIO);
    switch_mounts();
    const NodeId there = lookup("done")->node;
    EXPECT_EQ(commit(minutes(1), there), 0);
    EXPECT_TRUE(store.exists(kMoved));
    EXPECT_EQ(commit(hours(1), there), EIO);
}

// The mount that renamed it has its own record to remove, but this is not its own.
TEST_F(FailureRecordsTest, WhatMovedWithItsDirectoryStaysAfterTheTimeOfWhoRenamedIt) {
    fail_elsewhere(minutes(2));
    ASSERT_TRUE(rename("step", "between") && rename("between", "done"));
    EXPECT_TRUE(eventually([&] { return store.exists(kMoved); }));
    clock.advance(WriteConfig().failed_sibling_ttl + Milliseconds(1));
    timer.run(FailedSiblings::kTick);
    EXPECT_EQ(fs->unwritten(1).count, 0U);
    EXPECT_TRUE(store.exists(kMoved));
    EXPECT_EQ(commit(hours(1), lookup("done")->node), EIO);
}

// Of another mount, that failed to replace what this one had made good.
TEST_F(FailureRecordsTest, ARecordThatCannotBeRemovedHidesNoLaterOne) {
    turn_store_to(Milliseconds(0));
    fail_here();
    store.inject({Operation::kRemove, kRecord, store_error(EIO, "InternalError", 500), 0, 1, false});
    const HandleId again = create("shard", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(again, 0, "again") && close(again));
    ASSERT_TRUE(store.exists(kRecord));
    EXPECT_EQ(commit(hours(1), step), 0);
    ASSERT_TRUE(unlink(".metadata", step));
    fail_to_replace();
    EXPECT_EQ(commit(hours(1), step), EIO);
}

// Another mount has written the file since, and failed to replace that.
TEST_F(FailureRecordsTest, ARecordThatIsNotOutHidesNoLaterOne) {
    turn_store_to(Milliseconds(0));
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 1, false});
    fail_here();
    ASSERT_FALSE(store.exists(kRecord));
    store.put_object("p/step/shard", "what another mount has saved since");
    fail_to_replace();
    EXPECT_EQ(commit(hours(1), step), EIO);
}

// It was saved after this mount had looked, and before the file was opened.
TEST_F(FailureRecordsTest, WhatAnotherMountSavedBeforeTheFileWasTruncatedMakesNothingGood) {
    turn_store_to(Milliseconds(0));
    store.put_object("p/step/shard", "earlier");
    for (const char* saved : {"of another", "of another, once more"}) {
        const NodeId shard = lookup("shard", step)->node;
        store.put_object("p/step/shard", saved);
        deny_shard();
        const Result<OpenedFile> opened = open(shard, O_WRONLY | O_TRUNC);
        ASSERT_TRUE(opened && write(opened->handle, 0, "content"));
        EXPECT_EQ(errno_of(close(opened->handle)), EIO);
        EXPECT_EQ(commit(hours(1), step), EIO);
        clock.advance(Milliseconds(1));
    }
    store.put_object("p/step/shard", "written again");
    EXPECT_EQ(commit(hours(1), step), 0);
}

TEST_F(FailureRecordsTest, AFileFailsWhoseNameWasTakenByAnOpenThatNeverCameBack) {
    turn_store_to(Milliseconds(0));
    for (const bool was_saved : {false, true}) {
        const Result<CreatedFile> created = create("shard", O_WRONLY, step);
        ASSERT_TRUE(created && write(created->opened.handle, 0, "one"));
        if (was_saved) {
            ASSERT_TRUE(fsync(created->opened.handle) && write(created->opened.handle, 3, "two"));
        }
        EXPECT_EQ(errno_of(open(created->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
        // Another process looks, perhaps after a while.
        clock.advance(Milliseconds(2000));
        EXPECT_EQ(errno_of(lookup("shard", step)), was_saved ? 0 : ENOENT);
        deny_shard();
        EXPECT_EQ(errno_of(close(created->opened.handle)), EIO);
        EXPECT_EQ(commit(hours(1), step), EIO);
        ASSERT_TRUE(SyncStore(store).remove(kRecord));
        switch_mounts();
        step = lookup("step")->node;
    }
}

// A record says when the file failed, and not when it could be written.
class LateRecordsTest : public FailureRecordsTest, public ::testing::WithParamInterface<bool> {
protected:
    LateRecordsTest() { turn_store_to(Milliseconds(0)); }
    int commit_in(const std::string& directory) {
        if (GetParam()) {
            switch_mounts();
        }
        return commit(hours(1), lookup(directory)->node);
    }
};

INSTANTIATE_TEST_SUITE_P(, LateRecordsTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "OnAnotherMount" : "OnTheMountWhereItFailed"; });

TEST_P(LateRecordsTest, HoldNothingBackInADirectoryThatWasMadeAnewBefore) {
    deny_records();
    fail_here();
    pass(minutes(1));
    make_anew("p/step/");
    pass(minutes(1));
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    EXPECT_EQ(commit_in("step"), 0);
}

TEST_P(LateRecordsTest, HoldTheMarkerBackInTheDirectoryThatTheFileFailedIn) {
    make_anew("p/step/");
    deny_records();
    fail_here();
    pass(minutes(2));
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    EXPECT_EQ(commit_in("step"), EIO);
}

// What the file was to replace is not known.
TEST_P(LateRecordsTest, HoldNothingBackOfAFileThatAnotherMountWroteBefore) {
    for (const bool is_written_since : {false, true}) {
        SCOPED_TRACE(is_written_since);
        store.put_object("p/step/shard", "earlier");
        const NodeId shard = lookup("shard", step)->node;
        store.put_object("p/step/shard", "of another");
        deny_records();
        deny_shard();
        const Result<OpenedFile> opened = open(shard, O_WRONLY | O_TRUNC);
        ASSERT_TRUE(opened && write(opened->handle, 0, "content"));
        EXPECT_EQ(errno_of(close(opened->handle)), EIO);
        pass(minutes(1));
        if (is_written_since) {
            store.put_object("p/step/shard", "written again");
        }
        pass(minutes(1));
        recover();
        EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
        EXPECT_EQ(commit_in("step"), is_written_since ? 0 : EIO);
        // Else the next one is taken for written at once.
        ASSERT_TRUE(SyncStore(store).remove(kRecord));
        switch_mounts();
        end_mount();
        fs = make_mount("here");
        step = lookup("step")->node;
    }
}

TEST_P(LateRecordsTest, HoldTheMarkerBackInADirectoryThatWasRenamedSinceTheFileFailed) {
    deny_records();
    fail_here();
    pass(minutes(2));
    ASSERT_TRUE(rename("step", "done"));
    pass(minutes(2));
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kMoved); }));
    EXPECT_EQ(commit_in("done"), EIO);
}

// A mount that is killed, and the next one here.
class NotedFailuresTest : public FailureRecordsTest {
protected:
    NotedFailuresTest() {
        turn_store_to(Milliseconds(0));
        begin_mount();
    }
    void begin_mount() {
        FailureNotes notes;
        notes.begun = [noted = noted](const std::string& key, const std::string& record) { (*noted)[key] = record; };
        notes.ended = [noted = noted](const std::string& key) { noted->erase(key); };
        end_mount();
        fs = make_mount("here", std::move(notes));
        step = lookup("step").map([](const Entry& entry) { return entry.node; }).value_or(0);
    }
    void fail(const std::string& name = "shard") {
        store.inject({Operation::kPut, "p/step/" + name, store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        deny_records();
        const HandleId handle = create(name, O_WRONLY, step)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "content"));
        EXPECT_EQ(errno_of(close(handle)), EIO);
    }
    void kill_and_begin_anew() {
        const std::map<std::string, std::string> before = std::exchange(*noted, {});
        begin_mount();
        for (const auto& [key, record] : before) {
            fs->recall_failure(key, record);
        }
    }

    // It may outlive the test with the mount.
    const std::shared_ptr<std::map<std::string, std::string>> noted =
        std::make_shared<std::map<std::string, std::string>>();
};

TEST_F(NotedFailuresTest, AreThoseThatOthersAreNotToldOf) {
    fail();
    EXPECT_EQ(noted->count("p/step/shard"), 1U);
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    wait_for_threads();
    EXPECT_TRUE(noted->empty());
}

TEST_F(NotedFailuresTest, AreNoneOfWhatWasMadeGood) {
    fail();
    const HandleId handle = create("shard", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "again") && close(handle));
    EXPECT_TRUE(noted->empty());
}

TEST_F(NotedFailuresTest, HoldMarkersBackOnTheNextMountAndThenOnAll) {
    fail();
    kill_and_begin_anew();
    EXPECT_EQ(commit(hours(1), step), EIO);
    EXPECT_EQ(noted->count("p/step/shard"), 1U) << "the next may be killed as well";
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    EXPECT_NE(store.content(kRecord).find("AccessDenied"), std::string::npos) << store.content(kRecord);
    wait_for_threads();
    EXPECT_TRUE(noted->empty());
    switch_mounts();
    EXPECT_EQ(commit(hours(1), lookup("step")->node), EIO);
}

TEST_F(NotedFailuresTest, HoldNothingBackOfAFileThatWasSavedSince) {
    fail();
    store.put_object("p/step/shard", "what another mount has saved since");
    kill_and_begin_anew();
    EXPECT_EQ(commit(hours(1), step), 0);
    EXPECT_TRUE(noted->empty());
    EXPECT_FALSE(store.exists(kRecord));
}

// Two hours ago.
TEST_F(NotedFailuresTest, CountFromWhenTheFileFailed) {
    fs->recall_failure("p/step/shard", "host: here\nreason: no room\netag-before: \nsince: 1699992800\n");
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    switch_mounts();
    const NodeId there = lookup("step")->node;
    EXPECT_EQ(commit(hours(1), there), 0);
    EXPECT_EQ(commit(hours(3), there), EIO);
}

TEST_F(NotedFailuresTest, HoldNothingBackInADirectoryThatWasMadeAnewBeforeTheNextMount) {
    fail();
    pass(minutes(1));
    make_anew("p/step/");
    pass(minutes(1));
    kill_and_begin_anew();
    recover();
    EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
    switch_mounts();
    EXPECT_EQ(commit(hours(1), lookup("step")->node), 0);
}

TEST_F(NotedFailuresTest, HoldTheMarkerBackInADirectoryThatWasRenamedSince) {
    for (const bool is_renamed_before : {false, true}) {
        SCOPED_TRACE(is_renamed_before);
        fail();
        pass(minutes(2));
        if (is_renamed_before) {
            recover();
            EXPECT_TRUE(eventually([&] { return store.exists(kRecord); }));
            deny_records();
            ASSERT_TRUE(rename("step", "done"));
            pass(minutes(2));
        }
        kill_and_begin_anew();
        if (!is_renamed_before) {
            pass(minutes(2));
            ASSERT_TRUE(rename("step", "done"));
        }
        recover();
        EXPECT_TRUE(eventually([&] { return store.exists(kMoved); }));
        end_mount();
        fs = make_mount("there");
        EXPECT_EQ(commit(hours(1), lookup("done")->node), EIO);
        for (const std::string& key : store.keys()) {
            ASSERT_TRUE(SyncStore(store).remove(key));
        }
        store.put_object("p/step/", "");
        noted->clear();
        begin_mount();
    }
}

// A daemon that finished beside this mount was killed then.
TEST_F(NotedFailuresTest, AreNotOfWhatHasFailedHereSince) {
    const NodeId node = lookup("step")->node;
    store.put_object("p/step/shard", "what another mount has saved since");
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 100, false});
    store.inject({Operation::kPut, "p/step/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const Result<OpenedFile> opened = open(lookup("shard", node)->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened && write(opened->handle, 0, "content"));
    EXPECT_EQ(errno_of(close(opened->handle)), EIO);
    fs->recall_failure("p/step/shard", "host: here\nreason: no room\netag-before: \n");
    EXPECT_EQ(commit(hours(1), node), EIO);
}

// The store has taken the record, and its answer was lost.
TEST_F(NotedFailuresTest, AreKnownByTheRecordOfTheMountThatWasKilled) {
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 1, true});
    store.inject({Operation::kPut, "p/step/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const HandleId handle = create("shard", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    EXPECT_EQ(errno_of(close(handle)), EIO);
    ASSERT_TRUE(store.exists(kRecord));
    deny_records();
    kill_and_begin_anew();
    const HandleId again = create("shard", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(again, 0, "again") && close(again));
    EXPECT_FALSE(store.exists(kRecord));
}

TEST_F(NotedFailuresTest, AreNotOfWhatMayBeMissingByNow) {
    fs->recall_failure("p/step/train.log", "host: here\nreason: no room\netag-before: \n");
    EXPECT_EQ(fs->unwritten(1).count, 0U);
}

}  // namespace
}  // namespace ckptfs::fs
