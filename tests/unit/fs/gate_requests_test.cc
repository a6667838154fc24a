// SPDX-License-Identifier: Apache-2.0
// What is asked before a commit, and what the answers mean.
#include <linux/fs.h>

#include <future>
#include <string>
#include <vector>

#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "file_system_fixture.h"
#include "fs/objects/directory_marker.h"
#include "staged/hidden_key.h"
#include "support/hooked_store.h"
#include "support/sync_store.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class GateRequestsTest : public FileSystemTest {
protected:
    void expire(Operation operation, const std::string& key, int times) {
        Error expired = store_error(EACCES, "ExpiredToken", 400);
        expired.retryable = true;
        store.inject({operation, key, expired, 0, times, false});
    }
    // Of another mount, with a part.
    UploadId begin_upload(const std::string& key) {
        CreateUploadRequest request;
        request.key = key;
        UploadId upload = *SyncStore(store).create_upload(std::move(request));
        EXPECT_TRUE(SyncStore(store).upload_part({upload, 1, Payload::from_string("part"), 0}));
        return upload;
    }
    // Cannot be saved.
    HandleId begin_failing_shard() {
        store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        const HandleId handle = create("shard")->opened.handle;
        EXPECT_TRUE(write(handle, 0, "content"));
        return handle;
    }
    // By another mount, which writes p/shard once more.
    bool is_held_back_by_an_upload() {
        save("m.tmp", "metadata");
        store.advance_clock(Milliseconds(2000));
        const UploadId upload = begin_upload("p/shard");
        const Status refused = rename("m.tmp", ".metadata");
        EXPECT_TRUE(SyncStore(store).abort_upload(upload));
        return errno_of(refused) == EIO && !store.exists("p/.metadata") && rename("m.tmp", ".metadata");
    }
    // The record of p/shard.
    void fail_elsewhere() {
        store.put_object("p/.ckptfs/failed/shard", "host: node7\nreason: no room\netag-before: \n");
    }
    // Files that another mount could not write, and others have written since.
    void make_good_elsewhere(const std::string& directory, int files) {
        for (int file = 0; file < files; ++file) {
            const std::string name = directory + "shard" + std::to_string(file);
            store.put_object("p/.ckptfs/failed/" + name, "host: node7\nreason: no room\netag-before: \n");
            store.put_object("p/" + name, "written since");
        }
    }
};

TEST_F(GateRequestsTest, RecordsOfOtherMountsAreReadSideBySide) {
    make_good_elsewhere("", 40);
    store.put_object("p/.ckptfs/failed/removed", "host: node7\nreason: no room\netag-before: \n");
    save("m.tmp", "metadata");
    store.hold(Operation::kGet);
    auto committed = std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kGet, 16));
    ASSERT_TRUE(SyncStore(store).remove("p/.ckptfs/failed/removed"));
    store.release(Operation::kGet);
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(eventually([this] { return !store.exists("p/.ckptfs/failed/shard39"); }));
}

TEST_F(GateRequestsTest, RecordsOfOtherMountsAreReadSideBySideWhileTheirDirectoryIsHidden) {
    ASSERT_TRUE(mkdir("step"));
    make_good_elsewhere("step/", 40);
    store.put_object("p/.ckptfs/failed/step/missing", "host: node7\nreason: no room\netag-before: \n");
    store.hold(Operation::kGet);
    auto renamed = std::async(std::launch::async, [this] { return rename("step", "done"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kGet, 16));
    store.release(Operation::kGet);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/done/missing"));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/done/shard0"));
}

TEST_F(GateRequestsTest, ARecordIsReadAheadOfFileData) {
    make_good_elsewhere("", 1);
    std::vector<bool> is_small;
    HookedStore hooked(store, [](int) { return Fate::kPasses; });
    hooked.look_at_gets([&](const GetRequest& request) {
        if (request.key == "p/.ckptfs/failed/shard0") {
            is_small.push_back(request.is_small);
        }
    });
    fs = make_mount("there", hooked);
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_EQ(is_small, std::vector<bool>{true});
    // What it is at ends before its store.
    blocking.reset();
    fs.reset();
}

// A child that has inherited the descriptor keeps it open.
TEST_F(GateRequestsTest, WhatAnotherMountWritesIsSeenAlthoughItIsOpenHere) {
    const HandleId held = create("shard")->opened.handle;
    ASSERT_TRUE(write(held, 0, "saved"));
    ASSERT_TRUE(fsync(held));
    EXPECT_TRUE(is_held_back_by_an_upload());
    EXPECT_TRUE(close(held));
}

TEST_F(GateRequestsTest, WhatAnotherMountWritesIsSeenAlthoughItWasTruncatedHere) {
    const HandleId held = create("shard")->opened.handle;
    EXPECT_TRUE(is_held_back_by_an_upload());
    EXPECT_TRUE(write(held, 0, "written later") && close(held));
}

TEST_F(GateRequestsTest, WhatAnotherMountWritesIsSeenAlthoughItsRecordIsStillToBeRemovedHere) {
    EXPECT_EQ(errno_of(close(begin_failing_shard())), EIO);
    store.inject({Operation::kRemove, "p/.ckptfs/failed/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    save("shard", "again");
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/shard"));
    EXPECT_TRUE(is_held_back_by_an_upload());
}

TEST_F(GateRequestsTest, WhatAnotherMountWritesIsSeenAlthoughItFailedHereBeforeItWasSavedElsewhere) {
    const HandleId failed = begin_failing_shard();
    EXPECT_EQ(errno_of(fsync(failed)), EIO);
    store.put_object("p/shard", "saved elsewhere");
    EXPECT_TRUE(is_held_back_by_an_upload());
    EXPECT_TRUE(release(failed));
}

// Another mount ends what is left of a file once its record is there.
TEST_F(GateRequestsTest, WhatFailsOnAnotherMountAsUploadsAreListedIsSeenByItsRecord) {
    save("m.tmp", "metadata");
    const UploadId upload = begin_upload("p/shard");
    // Beside that of what other disks have acknowledged.
    const int lists = store.calls(Operation::kList) + 1;
    store.hold(Operation::kListUploads);
    auto committed = std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
    // Time for a list of records that does not wait.
    static_cast<void>(committed.wait_for(kForAWhile));
    EXPECT_EQ(store.calls(Operation::kList), lists);
    fail_elsewhere();
    ASSERT_TRUE(SyncStore(store).abort_upload(upload));
    store.release(Operation::kListUploads);
    EXPECT_EQ(errno_of(committed.get()), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
}

TEST_F(GateRequestsTest, WhatFailsOnAnotherMountBeforeHiddenObjectsAreListedIsSeenByItsRecord) {
    const std::string hidden = new_hidden_key({"p/", random_uuid()}, "p/shard");
    store.put_object(hidden, "part");
    HookedStore hooked(store, [](int) { return Fate::kPasses; });
    hooked.before_list("p/.ckptfs/tmp/", [&] {
        fail_elsewhere();
        EXPECT_TRUE(SyncStore(store).remove(hidden));
    });
    fs = make_mount("there", hooked);
    save("m.tmp", "metadata");
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
    // What it is at ends before its store.
    blocking.reset();
    fs.reset();
}

// Where the new name must be free, an open file is saved under its old one first.
TEST_F(GateRequestsTest, AMarkerThatIsRenamedAwayIsNotPublishedOverAFailedFile) {
    const HandleId marker = create(".metadata")->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata"));
    EXPECT_EQ(errno_of(close(begin_failing_shard())), EIO);
    store.inject({Operation::kCopy, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_FALSE(rename(".metadata", "m", RENAME_NOREPLACE));
    EXPECT_FALSE(store.exists("p/.metadata"));
    EXPECT_FALSE(store.exists("p/m"));
    EXPECT_TRUE(unlink("shard"));
    EXPECT_EQ(errno_of(rename(".metadata", "m", RENAME_NOREPLACE)), EACCES) << "of the copy";
    EXPECT_TRUE(rename(".metadata", "m", RENAME_NOREPLACE));
    EXPECT_TRUE(close(marker));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/m"});
}

// By that, the store's client knows what an attempt without an answer has made.
TEST_F(GateRequestsTest, AMarkerThatIsCopiedAgainWithANewPermitKeepsItsMarkWhileItsSourceDoes) {
    HookedStore seen(store, [](int) { return Fate::kPasses; });
    for (const bool is_replaced : {false, true}) {
        other_mount.reset();
        other_mount = make_mount("there", seen);
        fs.swap(other_mount);
        save("m.tmp", "metadata");
        std::vector<std::string> marks;
        seen.look_at_copies([&](const CopyRequest& copy) {
            marks.push_back(copy.description->metadata.at(kWriteIdMetadata));
            if (marks.size() > 1) {
                return;
            }
            clock.advance(Milliseconds(61'000));
            Error lost = store_error(EIO, "", 0);
            lost.outcome_unknown = true;
            store.inject({Operation::kCopy, "p/.metadata", lost, 0, 1, false});
            if (is_replaced) {
                store.put_object("p/m.tmp", "of another mount");
            }
        });
        EXPECT_TRUE(rename("m.tmp", ".metadata", RENAME_NOREPLACE));
        ASSERT_EQ(marks.size(), 2U);
        EXPECT_EQ(marks[0] == marks[1], !is_replaced);
        EXPECT_TRUE(unlink(".metadata"));
        fs.swap(other_mount);
    }
    other_mount.reset();
}

TEST_F(GateRequestsTest, CredentialsThatHaveExpiredDoNotEndTheLookAtUploads) {
    save("m.tmp", "metadata");
    const UploadId upload = begin_upload("p/shard");
    expire(Operation::kListUploads, "", 2);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EACCES);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EIO) << "another mount uploads a shard";
    EXPECT_FALSE(store.exists("p/.metadata"));
    ASSERT_TRUE(SyncStore(store).abort_upload(upload));
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
}

TEST_F(GateRequestsTest, AMarkerThatIsWrittenInPlaceGetsNoEaccesOfThem) {
    for (const bool is_synced : {false, true}) {
        const HandleId marker = create(".metadata")->opened.handle;
        ASSERT_TRUE(write(marker, 0, "metadata"));
        expire(Operation::kList, "p/.ckptfs/failed/", 1);
        if (is_synced) {
            EXPECT_EQ(errno_of(fsync(marker)), EIO);
        }
        EXPECT_EQ(errno_of(close(marker)), EIO);
        EXPECT_FALSE(store.exists("p/.metadata"));
    }
}

// Uploads whose beginning the store does not tell: they may have begun just now, also where the file was there before.
class UndatedUploads : public GateRequestsTest {
protected:
    UndatedUploads() {
        store.tell_no_upload_times();
        store.put_object("p/shard", "an earlier one");
        // By one clock.
        const auto behind = store.info("p/shard").last_modified - clock.wall_now() + std::chrono::seconds(2);
        clock.advance_wall(std::chrono::duration_cast<Milliseconds>(behind));
    }
    int commit_marker() {
        save("m.tmp", "metadata");
        return errno_of(rename("m.tmp", ".metadata"));
    }

    UploadId upload_ = begin_upload("p/shard");
};

TEST_F(UndatedUploads, HoldAMarkerBackForTheirTimeSinceTheyWereSeen) {
    const Milliseconds ttl = WriteConfig().failed_sibling_ttl;
    EXPECT_EQ(commit_marker(), EIO);
    clock.advance_wall(ttl / 2);
    EXPECT_EQ(commit_marker(), EIO);
    clock.advance_wall(ttl / 2 + std::chrono::seconds(1));
    EXPECT_EQ(commit_marker(), 0);
}

TEST_F(UndatedUploads, OfADeadMountAreFilesThatHaveFailed) {
    EXPECT_TRUE(answer<void>([&](auto reply) { fs->record_unfinished({upload_.key, upload_.id, {}}, reply); }));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/shard"));
}

TEST_F(GateRequestsTest, AStoreThatCannotListUploadsIsNotAskedAgain) {
    save("m.tmp", "metadata");
    static_cast<void>(begin_upload("p/shard"));
    store.inject({Operation::kListUploads, "", store_error(EOPNOTSUPP, "NotImplemented", 501), 0, 2, false});
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_EQ(store.calls(Operation::kListUploads), 2);
}

// It may be allowed by then.
TEST_F(GateRequestsTest, UploadsAreAskedForAgainAfterTenMinutes) {
    save("m.tmp", "metadata");
    static_cast<void>(begin_upload("p/shard"));
    store.inject({Operation::kListUploads, "", store_error(EACCES, "AccessDenied", 403), 0, 2, false});
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    clock.advance(std::chrono::minutes(10));
    save("m.tmp", "metadata");
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EIO);
}

// As while a permission is renewed.
TEST_F(GateRequestsTest, ARefusalByAStoreThatHasListedUploadsLetsNoMarkerPass) {
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    static_cast<void>(begin_upload("p/shard"));
    store.inject({Operation::kListUploads, "", store_error(EACCES, "AccessDenied", 403), 0, 2, false});
    save("m.tmp", "metadata");
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EACCES);
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EIO);
}

TEST_F(GateRequestsTest, ARefusalByAProxyIsNoAnswer) {
    save("m.tmp", "metadata");
    static_cast<void>(begin_upload("p/shard"));
    Error refusal = store_error(EACCES, "", 403);
    refusal.request_id.clear();
    store.inject({Operation::kListUploads, "", refusal, 0, 2, false});
    EXPECT_FALSE(rename("m.tmp", ".metadata"));
    EXPECT_FALSE(store.exists("p/.metadata"));
}

TEST_F(GateRequestsTest, WhatADeadMountLeftIsNoUploadThatIsGoneForExpiredCredentials) {
    const UploadId upload = begin_upload("p/shard");
    const auto tell = [&] {
        return answer<void>([&](auto reply) { fs->record_unfinished({upload.key, upload.id, {}}, reply); });
    };
    expire(Operation::kListUploads, "", 1);
    EXPECT_EQ(errno_of(tell()), EACCES);
    EXPECT_TRUE(tell());
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/shard"));
}

// Of a mount that was killed.
TEST_F(GateRequestsTest, WhatADeadMountLeftIsNoFailureInADirectoryThatWasMadeAnewSince) {
    for (const bool is_above : {false, true}) {
        SCOPED_TRACE(is_above);
        const UploadId upload = begin_upload("p/run/step/shard");
        store.advance_clock(Milliseconds(2000));
        store.put_object(is_above ? "p/run/" : "p/run/step/", "");
        const auto tell = [&] {
            return answer<void>([&](auto reply) { fs->record_unfinished({upload.key, upload.id, {}}, reply); });
        };
        expire(Operation::kHead, is_above ? "p/run/" : "p/run/step/", 1);
        EXPECT_EQ(errno_of(tell()), EACCES) << "it stays until that is known";
        EXPECT_TRUE(tell());
        EXPECT_FALSE(store.exists("p/.ckptfs/failed/run/step/shard"));
        ASSERT_TRUE(SyncStore(store).abort_upload(upload));
        ASSERT_TRUE(SyncStore(store).remove(is_above ? "p/run/" : "p/run/step/"));
    }
}

TEST_F(GateRequestsTest, WhatADeadMountLeftIsAFailureInADirectoryThatWasMadeBefore) {
    store.put_object("p/run/", "");
    store.put_object("p/run/step/", "");
    UploadId upload = begin_upload("p/run/step/shard");
    const auto tell = [&](std::optional<WallTime> asked) {
        return answer<void>([&](auto reply) {
            fs->record_unfinished({upload.key, asked ? "" : upload.id, asked}, reply);
        });
    };
    EXPECT_TRUE(tell(std::nullopt));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/run/step/shard"));
    upload.key = "p/run/step/other";
    // That mount's clock was some seconds behind.
    EXPECT_TRUE(tell(store.info("p/run/step/").last_modified - std::chrono::seconds(5)));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/run/step/other"));
}

// A disk acknowledges what it sends later (--ack disk).
TEST_F(GateRequestsTest, WhatADeadMountLeftIsAFailureBesideAnEarlierVersionThatWasSentSince) {
    store.put_object("p/step/shard", "the version before");
    store.put_object("p/step/other", "of another mount");
    store.put_object("p/step/again", "written by another mount with the same bytes");
    store.put_object("p/step/old", "of a journal that tells no ETag");
    const auto tell = [&](const char* key, Milliseconds sent_before, const std::string& etag) {
        const WallTime there = store.info(key).last_modified;
        return answer<void>([&](auto reply) {
            fs->record_unfinished({key, "", there - std::chrono::seconds(60), there - sent_before, etag}, reply);
        });
    };
    // The clocks differ.
    EXPECT_TRUE(tell("p/step/shard", Milliseconds(4000), store.info("p/step/shard").etag));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/step/shard"));
    EXPECT_TRUE(tell("p/step/other", Milliseconds(0), store.info("p/step/shard").etag));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/step/other")) << "it was saved after that";
    EXPECT_TRUE(tell("p/step/again", Milliseconds(30'000), store.info("p/step/again").etag));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/step/again"));
    EXPECT_TRUE(tell("p/step/old", Milliseconds(0), ""));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/step/old"));
}

// Its rename may be undone, and the directory is the one that it was.
TEST_F(GateRequestsTest, WhatADeadMountLeftIsAFailureInADirectoryThatIsHiddenSince) {
    const UploadId upload = begin_upload("p/step/shard");
    store.advance_clock(Milliseconds(2000));
    store.put_object("p/step/", std::string(kDirectoryMarkerSize, 'x'));
    EXPECT_TRUE(answer<void>([&](auto reply) { fs->record_unfinished({upload.key, upload.id, {}}, reply); }));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/step/shard"));
}

TEST_F(GateRequestsTest, ADirectoryIsNotRenamedWithoutItsFailuresForExpiredCredentials) {
    ASSERT_TRUE(mkdir("step"));
    store.put_object("p/.ckptfs/failed/step/shard", "host: node7\nreason: no room\netag-before: \n");
    expire(Operation::kList, "p/.ckptfs/failed/step/", 1);
    EXPECT_EQ(errno_of(rename("step", "done")), EACCES);
    EXPECT_TRUE(store.exists("p/step/"));
    EXPECT_TRUE(rename("step", "done"));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/done/shard"));
}

TEST_F(GateRequestsTest, ADirectoryIsNotListedWithoutTheRenamesForExpiredCredentials) {
    ASSERT_TRUE(mkdir("step"));
    expire(Operation::kList, std::string("p/") + std::string(kRenamesPrefix), 1);
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    // Behind "." and "..".
    const auto entries = [&] {
        return answer<std::vector<DirectoryEntry>>([&](auto reply) { fs->read_directory(handle, 2, 7, false, reply); });
    };
    EXPECT_EQ(errno_of(entries()), EACCES);
    EXPECT_TRUE(entries());
    fs->release_directory(handle);
}

}  // namespace
}  // namespace ckptfs::fs
