// SPDX-License-Identifier: Apache-2.0
// Files that fail, the records of them, and the commits they hold back.
#include "fs/failures/failed_siblings.h"

#include <future>

#include "failed_siblings_fixture.h"

namespace ckptfs::fs {
namespace {

TEST_F(FailedSiblingsTest, AFailedFileIsRecordedBeforeItsCloseReturns) {
    fail_shard();
    EXPECT_EQ(store.content(kRecord).find("host: here\netag-before: \nbegan: 1700000000\nreason: "), 0U)
        << store.content(kRecord);
    EXPECT_EQ(errno_of(commit()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
    save("shard", "again");
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
    EXPECT_TRUE(commit());
}

TEST_F(FailedSiblingsTest, WhatIsNotMadeGoodIsNamedTheLatestFirst) {
    EXPECT_EQ(fs->unwritten(9).count, 0U);
    for (const char* name : {"b", "c", "a"}) {
        store.inject(
            {Operation::kPut, std::string("p/") + name, store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        const HandleId handle = create(name)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "content"));
        EXPECT_EQ(errno_of(close(handle)), EIO);
        clock.advance(std::chrono::milliseconds(1));
    }
    save("b", "again");
    const UnwrittenFiles files = fs->unwritten(1);
    EXPECT_EQ(files.count, 2U);
    ASSERT_EQ(files.latest.size(), 1U);
    EXPECT_EQ(files.latest.front().key, "p/a");
    EXPECT_NE(files.latest.front().reason.find("AccessDenied"), std::string::npos);
}

TEST_F(FailedSiblingsTest, CloseWaitsForTheRecordButNotForEver) {
    for (const bool store_answers : {true, false}) {
        const std::string name = store_answers ? "first" : "second";
        store.inject({Operation::kCreateUpload, "p/" + name, store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        store.hold(Operation::kPut);
        const HandleId handle = create(name)->opened.handle;
        for (std::uint64_t block = 0; block < 24; ++block) {
            static_cast<void>(write(handle, block << 20, std::string(std::size_t{1} << 20, 'a')));
        }
        ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
        auto closed = std::async(std::launch::async, [&] { return flush(handle); });
        EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
        if (store_answers) {
            store.release(Operation::kPut);
        } else {
            ASSERT_TRUE(eventually([&] {
                timer.run(FailedSiblings::kLongestWait);
                return closed.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
            }));
        }
        EXPECT_EQ(errno_of(closed.get()), EIO);
        EXPECT_EQ(store.exists("p/.ckptfs/failed/" + name), store_answers);
        static_cast<void>(release(handle));
    }
    store.release(Operation::kPut);
}

TEST_F(FailedSiblingsTest, AnUploadThatFailedIsEndedOnceOtherMountsAreTold) {
    save("m.tmp", "metadata");
    for (const int flags : {O_WRONLY, O_RDWR, O_WRONLY | O_APPEND}) {
        const std::string name = "shard" + std::to_string(flags);
        const HandleId handle = fail_upload(name, flags);
        switch_mounts();
        const Status refused = rename("m.tmp", ".metadata");
        ASSERT_EQ(errno_of(refused), EIO);
        EXPECT_NE(refused.error().message.find("is being written by another mount"), std::string::npos)
            << refused.error().message;
        switch_mounts();
        EXPECT_EQ(store.open_uploads(), 1);
        store.release(Operation::kPut);
        EXPECT_TRUE(eventually([&] { return store.open_uploads() == 0; }));
        EXPECT_TRUE(store.exists("p/.ckptfs/failed/" + name));
        EXPECT_EQ(errno_of(close(handle)), EIO);
        save(name, "again");
        ASSERT_TRUE(eventually([&] { return !store.exists("p/.ckptfs/failed/" + name); }));
    }
}

TEST_F(FailedSiblingsTest, AnUploadThatFailedIsEndedThoughOtherMountsCannotBeTold) {
    const HandleId handle = fail_upload("shard", O_WRONLY);
    EXPECT_TRUE(eventually([&] {
        timer.run(FailedSiblings::kLongestWait);
        return store.open_uploads() == 0;
    }));
    EXPECT_FALSE(store.exists(kRecord));
    store.release(Operation::kPut);
    EXPECT_EQ(errno_of(close(handle)), EIO);
}

TEST_F(FailedSiblingsTest, WithoutTheStoreItIsRememberedAndToldLater) {
    store.inject({Operation::kPut, kRecord, store_error(EIO, "InternalError", 500), 0, 2, false});
    fail_shard();
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
    EXPECT_EQ(errno_of(commit()), EIO);
    clock.advance(FailedSiblings::kTick);
    const int tries = store.calls(Operation::kPut);
    tick();
    EXPECT_TRUE(eventually([&] { return store.calls(Operation::kPut) > tries; }));
    EXPECT_FALSE(store.exists(kRecord)) << "the second try fails as well";
    EXPECT_TRUE(eventually([&] {
        clock.advance(FailedSiblings::kTick * 2);
        tick();
        return store.exists(kRecord);
    }));
}

TEST_F(FailedSiblingsTest, ARecordThatCannotBeRemovedHoldsNothingBack) {
    fail_shard();
    store.inject({Operation::kRemove, kRecord, store_error(EIO, "InternalError", 500), 0, 1, false});
    save("shard", "again");
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_TRUE(commit());
    clock.advance(FailedSiblings::kTick);
    tick();
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
}

TEST_F(FailedSiblingsTest, ItIsForgottenAfterItsTime) {
    fail_shard();
    clock.advance(WriteConfig().failed_sibling_ttl + Milliseconds(1));
    tick();
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
    EXPECT_TRUE(commit());
}

TEST_F(FailedSiblingsTest, WhatARecordOfAnotherMountSaysIsPassedOn) {
    store.put_object(kRecord, "host: node7\nreason: no room\n");
    const Status refused = commit();
    ASSERT_EQ(errno_of(refused), EIO);
    for (const char* word : {"p/.metadata", "p/shard", "node7", "no room"}) {
        EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
    }
}

TEST_F(FailedSiblingsTest, TheFailureOfWhoReplacedItStaysRecorded) {
    store.put_object("p/shard", "what another mount has saved since");
    const auto saved = answer<ObjectInfo>([&](auto reply) { store.head("p/shard", reply); });
    store.put_object(kRecord, "host: node7\nreason: no room\netag-before: " + saved->etag + "\n");
    fail_shard();
    EXPECT_EQ(store.content(kRecord).find("host: node7\n"), 0U) << store.content(kRecord);
    EXPECT_EQ(errno_of(commit()), EIO);
}

// Of the same name, by an attempt that the file it publishes knows nothing of.
TEST_F(FailedSiblingsTest, ACommitThatHadBegunDoesNotMakeAFailureGood) {
    const HandleId first = create("shard")->opened.handle;
    ASSERT_TRUE(write(first, 0, "content"));
    store.hold(Operation::kPut);
    auto closed = std::async(std::launch::async, [&] { return close(first); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    clock.advance(Milliseconds(1));
    store.inject({Operation::kUploadPart, "", store_error(EACCES, "AccessDenied", 403), 1, 1, false});
    // Behind the open file the name gets another node.
    ASSERT_EQ(errno_of(open(lookup("shard")->node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId second = open(lookup("shard")->node, O_WRONLY | O_TRUNC)->handle;
    for (std::uint64_t block = 0; block < 40; ++block) {
        static_cast<void>(write(second, block << 20, std::string(std::size_t{1} << 20, 'a')));
    }
    ASSERT_TRUE(eventually([&] { return fs->statistics().files_failed > 0; }));
    store.release(Operation::kPut);
    EXPECT_TRUE(closed.get());
    EXPECT_EQ(errno_of(commit()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
}

// The clock of this machine is that of the fixture, years behind the store's.
TEST_F(FailedSiblingsTest, AFailureCountsInADirectoryThatWasMadeByTheStoresLaterClock) {
    const NodeId step = mkdir("step")->node;
    store.inject({Operation::kPut, "p/step/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const HandleId handle = create("shard", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    EXPECT_EQ(errno_of(close(handle)), EIO);
    const HandleId marker = create("m.tmp", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata") && close(marker));
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, step)), EIO);
    EXPECT_FALSE(store.exists("p/step/.metadata"));
}

// Of a mount that was killed; the next one tells of it until it is heard.
TEST_F(FailedSiblingsTest, WhatWasRemovedSinceIsNotToldOfOnceMore) {
    store.inject({Operation::kPut, kRecord, store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const UnfinishedFile file{"p/shard", "", clock.wall_now()};
    const auto tell = [&] { return answer<void>([&](auto reply) { fs->record_unfinished(file, reply); }); };
    EXPECT_EQ(errno_of(tell()), EIO);
    EXPECT_EQ(errno_of(commit()), EIO);
    ASSERT_TRUE(lookup("shard") && unlink("shard"));
    EXPECT_TRUE(tell());
    EXPECT_FALSE(store.exists(kRecord));
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
}

// Nor is the version known that it was to replace.
TEST_F(FailedSiblingsTest, AFailureThatCouldNotBeRecordedHoldsTheMarkerBack) {
    const NodeId step = mkdir("step")->node;
    store.put_object("p/.ckptfs/failed/step/shard", "host: node7\nreason: no room\netag-before: \n");
    const HandleId marker = create("m.tmp", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata") && close(marker));
    const Error denied = store_error(EACCES, "AccessDenied", 403);
    store.inject({Operation::kHead, "p/done/shard", denied, 0, 1, false});
    store.inject({Operation::kPut, "p/.ckptfs/failed/done/shard", denied, 0, 100, false});
    ASSERT_TRUE(rename("step", "done"));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/step/shard"));
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, lookup("done")->node)), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
}

TEST_F(FailedSiblingsTest, WhatFailedOnAnotherMountMovesWithItsDirectory) {
    for (const bool had_version : {false, true}) {
        const NodeId step = mkdir("step")->node;
        if (had_version) {
            store.put_object("p/step/shard", "earlier");
        }
        store.put_object("p/.ckptfs/failed/step/shard", "host: node7\nreason: no room\netag-before: " +
                                                            (had_version ? store.info("p/step/shard").etag : "") +
                                                            "\n");
        const HandleId marker = create("m.tmp", O_WRONLY, step)->opened.handle;
        ASSERT_TRUE(write(marker, 0, "metadata") && close(marker));
        ASSERT_TRUE(rename("step", "done"));
        EXPECT_TRUE(store.exists("p/.ckptfs/failed/done/shard"));
        EXPECT_TRUE(eventually([&] { return !store.exists("p/.ckptfs/failed/step/shard"); }));
        EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, lookup("done")->node)), EIO);
        EXPECT_FALSE(store.exists("p/done/.metadata"));
        for (const std::string& key : store.keys()) {
            ASSERT_TRUE(answer<void>([&](auto reply) { store.remove(key, reply); }));
        }
        clock.advance(Milliseconds(2000));
    }
}

TEST_F(FailedSiblingsTest, WhatFailedHasItsNewNameBeforeOtherMountsSeeTheDirectory) {
    const NodeId step = mkdir("step")->node;
    store.put_object("p/.ckptfs/failed/step/shard", "host: node7\nreason: no room\netag-before: \n");
    write_marker(step);
    store.hold(Operation::kRemoveMany);
    auto renamed = std::async(std::launch::async, [&] { return rename("step", "done"); });
    EXPECT_TRUE(eventually([&] { return store.exists("p/done/") && store.content("p/done/").empty(); }));
    switch_mounts();
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, lookup("done")->node)), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
    switch_mounts();
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(renamed.get());
}

TEST_F(FailedSiblingsTest, WhatFailedTakesThePlaceOfWhatFailedInADirectoryThatIsReplaced) {
    fail_shard("done/", mkdir("done")->node);
    fail_shard("step/", mkdir("step")->node);
    ASSERT_TRUE(rename("step", "done"));
    const NodeId done = lookup("done")->node;
    write_marker(done);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, done)), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
}

TEST_F(FailedSiblingsTest, ARenameOfItsDirectoryThatIsUndoneMakesNothingGood) {
    const NodeId step = mkdir("step")->node;
    fail_shard("step/", step);
    write_marker(step);
    for (int tries = 0; tries < 2; ++tries) {
        fail_rename("step", "done");
        EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, step)), EIO);
        EXPECT_FALSE(store.exists("p/step/.metadata"));
    }
    ASSERT_TRUE(rename("step", "done"));
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, lookup("done")->node)), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
}

TEST_F(FailedSiblingsTest, ARenameOverItsDirectoryThatIsUndoneMakesNothingGood) {
    const NodeId done = mkdir("done")->node;
    fail_shard("done/", done);
    ASSERT_TRUE(mkdir("step"));
    fail_rename("step", "done");
    write_marker(done);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, done)), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
}

// Other tools make directories without one.
TEST_F(FailedSiblingsTest, AMarkerThatKeepsADirectoryMakesNothingGood) {
    store.put_object("p/step/other", "content");
    const NodeId step = lookup("step")->node;
    fail_shard("step/", step);
    ASSERT_TRUE(lookup("other", step) && unlink("other", step));
    EXPECT_TRUE(store.exists("p/step/"));
    write_marker(step);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, step)), EIO);
    EXPECT_FALSE(store.exists("p/step/.metadata"));
}

// This mount does not hear of what others save, nor of what they fail to save after that.
TEST_F(FailedSiblingsTest, ALaterFailureOfAnotherMountIsNotCoveredByAnEarlierOneHere) {
    fail_shard();
    store.put_object("p/shard", "what another mount has saved since");
    const std::string record = "host: node7\nreason: no room\netag-before: " + store.info("p/shard").etag + "\n";
    store.put_object(kRecord, record);
    EXPECT_EQ(errno_of(commit()), EIO);
    EXPECT_EQ(store.content(kRecord), record);
    EXPECT_FALSE(store.exists("p/.metadata"));
}

TEST_F(FailedSiblingsTest, AFileThatFailsAgainOverAnotherVersionHasFailedAnew) {
    fail_shard();
    const std::string first = store.content(kRecord);
    store.put_object("p/shard", "what another mount has saved since");
    clock.advance(Milliseconds(2000));
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const Result<OpenedFile> opened = open(lookup("shard")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened) << opened.error().message;
    ASSERT_TRUE(write(opened->handle, 0, "content"));
    EXPECT_EQ(errno_of(close(opened->handle)), EIO);
    EXPECT_NE(store.content(kRecord), first);
    EXPECT_EQ(errno_of(commit()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
}

// The directory was made anew in between, by another mount.
TEST_F(FailedSiblingsTest, AFileThatFailsAgainWhereNothingWasHasFailedAnew) {
    store.advance_clock(std::chrono::duration_cast<Milliseconds>(clock.wall_now() - std::chrono::system_clock::now()));
    const auto pass = [this] {
        clock.advance(std::chrono::minutes(10));
        clock.advance_wall(std::chrono::minutes(10));
        store.advance_clock(std::chrono::minutes(10));
    };
    const NodeId step = mkdir("step")->node;
    fail_shard("step/", step);
    pass();
    store.put_object("p/step/", "");
    pass();
    fail_shard("step/", step);
    write_marker(step);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, step)), EIO);
    EXPECT_FALSE(store.exists("p/step/.metadata"));
}

TEST_F(FailedSiblingsTest, WhoOpensAFailedFileThatTheKernelStillKnowsFindsNothingTheSecondTime) {
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const CreatedFile failed = *create("shard");
    ASSERT_TRUE(write(failed.opened.handle, 0, "content"));
    EXPECT_EQ(errno_of(close(failed.opened.handle)), EIO);
    EXPECT_EQ(errno_of(open(failed.entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    EXPECT_EQ(errno_of(lookup("shard")), ENOENT);
    save("shard", "again");
    EXPECT_EQ(store.content("p/shard"), "again");
}

TEST_F(FailedSiblingsTest, TheNameOfAFailedFileCanBeUnlinkedAndNothingElse) {
    fail_shard();
    ASSERT_TRUE(lookup("shard"));
    EXPECT_EQ(list(), (std::vector<std::string>{".", ".."}));
    EXPECT_TRUE(unlink("shard"));
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
    EXPECT_EQ(errno_of(lookup("shard")), ENOENT);
    EXPECT_TRUE(commit());
}

TEST_F(FailedSiblingsTest, WhoLooksAtTheNameOfAFailedFileFindsNothing) {
    fail_shard();
    const NodeId node = lookup("shard")->node;
    EXPECT_EQ(errno_of(getattr(node)), ESTALE);
    EXPECT_EQ(errno_of(lookup("shard")), ENOENT) << "as the kernel asks after that";
    EXPECT_EQ(errno_of(getattr(node)), ESTALE);
    EXPECT_EQ(errno_of(commit()), EIO);
    for (const int flags : {O_RDONLY, O_WRONLY, O_WRONLY | O_TRUNC}) {
        fail_shard();
        // Still the first failure.
        EXPECT_EQ(errno_of(lookup("shard")), ENOENT);
        save("shard", "again");
        ASSERT_TRUE(unlink("shard"));
        fail_shard();
        EXPECT_EQ(errno_of(open(lookup("shard")->node, flags)), ESTALE);
        EXPECT_EQ(errno_of(lookup("shard")), ENOENT);
    }
}

TEST_F(FailedSiblingsTest, AFileRemovedOrReplacedWhileItIsWrittenIsMissedByNobody) {
    const HandleId removed = create("removed")->opened.handle;
    ASSERT_TRUE(write(removed, 0, "content"));
    ASSERT_TRUE(unlink("removed"));
    const HandleId replaced = create("replaced")->opened.handle;
    ASSERT_TRUE(write(replaced, 0, "content"));
    save("new", "content");
    ASSERT_TRUE(rename("new", "replaced"));
    static_cast<void>(close(removed));
    static_cast<void>(close(replaced));
    EXPECT_TRUE(commit());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/.metadata", "p/replaced"}));
}

TEST_F(FailedSiblingsTest, AnOrdinaryCommitIsFiveRequestsMore) {
    save("m.tmp", "metadata");
    save("other", "metadata");
    store.reset_calls();
    ASSERT_TRUE(rename("other", "renamed"));
    const int ordinary = store.calls();
    store.reset_calls();
    ASSERT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_EQ(store.calls(), ordinary + 5);
}

// The gate stood open when the rename asked.
TEST_F(FailedSiblingsTest, WhatIsSyncedWhileItsFileBecomesAMarkerWaitsForWhatFailsMeanwhile) {
    const HandleId handle = create("m.tmp")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one") && fsync(handle));
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("m.tmp", ".metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    EXPECT_TRUE(write(handle, 3, "two"));
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    EXPECT_EQ(synced.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    fail_shard();
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(errno_of(synced.get()), EIO);
    EXPECT_EQ(store.content("p/.metadata"), "one");
    EXPECT_EQ(errno_of(close(handle)), EIO);
}

// When the sync came there was nothing to save.
TEST_F(FailedSiblingsTest, WhatIsWrittenToAMarkerWhileItsSyncWaitsIsHeldBackToo) {
    const HandleId handle = create(".metadata")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one") && fsync(handle));
    store.hold(Operation::kCopy);
    store.inject({Operation::kCopy, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    auto renamed = std::async(std::launch::async, [&] { return rename(".metadata", "m"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    EXPECT_EQ(synced.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    EXPECT_TRUE(write(handle, 3, "two"));
    fail_shard();
    store.release(Operation::kCopy);
    EXPECT_FALSE(renamed.get());
    EXPECT_EQ(errno_of(synced.get()), EIO);
    EXPECT_EQ(store.content("p/.metadata"), "one");
    EXPECT_EQ(errno_of(close(handle)), EIO);
}

TEST_F(FailedSiblingsTest, AnOpenFileOfThisMountIsSavedBeforeTheMarker) {
    const HandleId handle = create("shard")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "so far"));
    const HandleId lock = create(".lock")->opened.handle;
    ASSERT_TRUE(commit());
    EXPECT_EQ(store.content("p/shard"), "so far");
    EXPECT_FALSE(store.exists("p/.lock"));
    static_cast<void>(close(handle));
    static_cast<void>(close(lock));
}

}  // namespace
}  // namespace ckptfs::fs
