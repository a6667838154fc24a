// SPDX-License-Identifier: Apache-2.0
// Who may act for a directory's rename that its mount does not finish.
#include "fs/moves/rename_repairs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>

#include "base/uuid.h"
#include "directory_rename_fixture.h"
#include "fs/failures/failed_siblings.h"
#include "fs/moves/rename_record.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

const Names kKeysOfOld{"p/old/", "p/old/a", "p/old/b", "p/old/deep/", "p/old/deep/c"};
const Names kKeysOfNew{"p/new/", "p/new/a", "p/new/b", "p/new/deep/", "p/new/deep/c"};

class RenameRepairsTest : public DirectoryRenameTest {
protected:
    RenameRepairsTest() {
        // Of copies as of what they are copies of.
        store.make_etags_of_content();
        start_again();
    }
    // What the other mount is at ends before its store.
    ~RenameRepairsTest() override {
        blocking.reset();
        other_mount.reset();
    }

    // Another mount repairs what was killed while copying, and stands still before it deletes the copies.
    void repair_and_stand_still(std::function<void()> meanwhile) {
        store.advance_clock(kRepairAfter + Milliseconds(1000));
        std::promise<void> stood;
        its_store.before_removals("p/new/", [&] {
            meanwhile();
            stood.set_value();
        });
        other_mount = make_mount("there", its_store);
        static_cast<void>(answer<Entry>([&](auto reply) { other_mount->lookup(kRootNode, "new", {}, reply); }));
        ASSERT_EQ(stood.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
        // Until it has gone on to its end.
        blocking.reset();
    }
    // By another mount, whose store leaves requests without an answer.
    int rename_there() {
        if (other_mount == nullptr) {
            other_mount = make_mount("there", its_store);
        }
        return errno_of(answer<void>([&](auto reply) {
            other_mount->rename(kRootNode, "old", kRootNode, "new", 0, Caller{kProcess, 0, 0}, reply);
        }));
    }
    // As above; what was left without an answer takes effect before the rename returns. `destination`: meanwhile.
    int rename_there_and_wait(const Tree& destination = std::nullopt) {
        auto renamed = std::async(std::launch::async, [this] { return rename_there(); });
        EXPECT_TRUE(eventually([this] { return timer.waiting(kLastRequests) == 1; }));
        EXPECT_EQ(tree("old"), kWhole);
        EXPECT_EQ(tree("new"), destination);
        its_store.carry_out_late();
        EXPECT_EQ(tree("new"), std::nullopt);
        timer.run(kLastRequests);
        const int failure = renamed.get();
        EXPECT_EQ(only_record(), "");
        EXPECT_EQ(tree("old"), kWhole);
        EXPECT_EQ(tree("new"), destination);
        return failure;
    }
    // Nobody hears of the one that stands still.
    void repair_and_rename_again() {
        clock.advance(kRepairAfter);
        EXPECT_TRUE(repaired());
        EXPECT_EQ(errno_of(rename("old", "new")), 0);
    }

    // On this machine and in the store.
    void pass(Milliseconds time) {
        clock.advance(time);
        store.advance_clock(time);
    }

    // A mount that lives, and of which nothing but the record is looked at.
    std::string put_record_of(int number) {
        DirectoryMarker rename;
        rename.state = MarkerState::kCopying;
        rename.prefix = "p/";
        rename.source = "p/source" + std::to_string(number) + "/";
        rename.destination = "p/destination" + std::to_string(number) + "/";
        rename.rename_id = rename.writer_id = random_uuid();
        store.put_object(record_key(rename), encode_marker(rename));
        return record_key(rename);
    }

    // A file fails on a mount that then renames the directory, and stands still right after the decision.
    Status fail_and_rename_and_stand_still(std::function<void()> meanwhile) {
        its_meanwhile = std::move(meanwhile);
        store.put_object("p/old/shard", "earlier");
        other_mount = make_mount("there", frozen_store);
        fs.swap(other_mount);
        store.inject({Operation::kPut, "p/old/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        const HandleId handle = open(lookup("shard", lookup("old")->node)->node, O_WRONLY | O_TRUNC)->handle;
        EXPECT_TRUE(write(handle, 0, "content"));
        auto closed = std::async(std::launch::async, [&] { return close(handle); });
        EXPECT_TRUE(eventually([&] {
            timer.run(FailedSiblings::kLongestWait);
            return closed.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        }));
        EXPECT_EQ(errno_of(closed.get()), EIO);
        fs.swap(other_mount);
        frozen_store.before_list("p/.ckptfs/failed/old/", [this] { store.hold(Operation::kPut); });
        auto renamed = std::async(std::launch::async, [this] {
            return answer<void>([&](auto reply) {
                other_mount->rename(kRootNode, "old", kRootNode, "new", 0, Caller{kProcess, 0, 0}, reply);
            });
        });
        EXPECT_TRUE(store.wait_until_held(Operation::kPut, 1));
        clock.advance(kRepairAfter);
        store.release(Operation::kPut);
        return renamed.get();
    }

    std::function<void()> its_meanwhile;
    std::atomic<bool> stands_still = false;
    HookedStore frozen_store{store, [this](int) {
                                 if (its_meanwhile && is_decided() && !stands_still.exchange(true)) {
                                     its_meanwhile();
                                 }
                                 return Fate::kPasses;
                             }};
    const Milliseconds kDeadAfter = believed_dead_after(kRepairAfter);
    HookedStore its_store{store, [](int) { return Fate::kPasses; }};
};

TEST_F(RenameRepairsTest, WhatWasMadeGoodAfterOthersFinishedTheRenameDoesNotFailAgain) {
    EXPECT_TRUE(fail_and_rename_and_stand_still([this] {
        EXPECT_TRUE(repaired("/.ckptfs/rename"));
        const HandleId handle = open(lookup("shard", lookup("new")->node)->node, O_WRONLY | O_TRUNC)->handle;
        EXPECT_TRUE(write(handle, 0, "content") && close(handle));
        EXPECT_TRUE(SyncStore(store).remove("p/.ckptfs/failed/new/shard"));
    }));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/new/shard"));
}

TEST_F(RenameRepairsTest, WhatNobodyElseKnowsOfIsMovedAlthoughOthersFinishTheRename) {
    store.inject(
        {Operation::kPut, "p/.ckptfs/failed/old/shard", store_error(EACCES, "AccessDenied", 403), 0, 1000, false});
    EXPECT_EQ(errno_of(fail_and_rename_and_stand_still([] {})), EIO);
    EXPECT_TRUE(repaired("/.ckptfs/rename"));
    EXPECT_EQ(commit_marker_in("new"), EIO);
}

TEST_F(RenameRepairsTest, ARepairThatWasOvertakenDeletesNothing) {
    rename_and_be_killed_while_copying();
    repair_and_stand_still([this] { repair_and_rename_again(); });
    EXPECT_EQ(store.keys(), kKeysOfNew);
}

// What a process that was too slow to see its end wrote late.
TEST_F(RenameRepairsTest, ARepairOfARenameWithoutARecordThatWasOvertakenDeletesNothing) {
    rename_and_be_killed_while_copying();
    ASSERT_TRUE(SyncStore(store).remove(only_record()));
    repair_and_stand_still([this] {
        EXPECT_NE(only_record(), "");
        repair_and_rename_again();
    });
    EXPECT_EQ(store.keys(), kKeysOfNew);
}

TEST_F(RenameRepairsTest, ARenamerThatWasOvertakenDeletesNothingUnderTheOldName) {
    its_store.before_removals("p/old/", [this] {
        its_clock.advance(kRepairAfter);
        EXPECT_TRUE(repaired());
        EXPECT_EQ(errno_of(rename("new", "old")), 0);
    });
    EXPECT_TRUE(rename_with(its_store));
    EXPECT_EQ(store.keys(), kKeysOfOld);
}

TEST_F(RenameRepairsTest, WhatAnotherMountHasTakenOverIsNoLongerTheDeadOnes) {
    rename_and_be_killed_while_copying();
    RenameRecord held(store, clock, kRepairAfter);
    ASSERT_TRUE(held.take_over(*read_marker(store, clock, only_record()), MarkerState::kRollingBack));
    EXPECT_FALSE(timer.waits_longer_than(kDeadAfter));
    fs->end_renames({only_record()});
    EXPECT_TRUE(eventually([this] { return timer.waits_longer_than(kDeadAfter); }));
}

TEST_F(RenameRepairsTest, TheLastRequestsOfADeadMountAreWaitedForFromItsDeathOn) {
    rename_and_be_killed_while_copying();
    // Since its last heartbeat.
    store.advance_clock(kDeadAfter - Milliseconds(5000));
    fs->end_renames({only_record()});
    EXPECT_TRUE(eventually([this] { return timer.waiting(kDeadAfter) == 1; }));
    pass(kDeadAfter);
    timer.run(kDeadAfter);
    EXPECT_TRUE(eventually([this] { return only_record().empty(); }));
    EXPECT_EQ(tree("old"), kWhole);
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(RenameRepairsTest, ACopyThatTakesEffectAfterItsRenameFailedIsNotShown) {
    its_store.delay_write("p/new/b", false);
    EXPECT_EQ(rename_there_and_wait(), EIO);
    EXPECT_EQ(store.keys(), kKeysOfOld);
    EXPECT_EQ(rename_there(), 0);
    EXPECT_EQ(tree("new"), kWhole);
}

TEST_F(RenameRepairsTest, AnAttemptOfACopyThatTakesEffectAfterItsRenameFailedIsNotShown) {
    its_store.delay_write("p/new/b", true);
    store.inject({Operation::kPut, "p/old/", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(rename_there_and_wait(), EACCES);
    EXPECT_EQ(store.keys(), kKeysOfOld);
}

TEST_F(RenameRepairsTest, AMarkerThatTakesEffectAfterItsRenameFailedHidesNothingForLong) {
    its_store.delay_write("p/new/", false);
    EXPECT_EQ(rename_there_and_wait(), EIO);
    EXPECT_EQ(store.keys(), kKeysOfOld);
    its_store.delay_write("p/old/", false);
    EXPECT_EQ(rename_there_and_wait(), EIO);
    EXPECT_EQ(store.keys(), kKeysOfOld);
}

// Nothing is deleted or moved of what others have saved there, under names that are in the source, too.
TEST_F(RenameRepairsTest, AMarkerThatTakesEffectLateTakesNothingOfWhatIsInTheDestination) {
    store.put_object("p/new/", "");
    its_store.delay_write("p/new/", true);
    const std::function<void()> save_once_hidden = [&] {
        if (may_hide_directory(store.info("p/new/").size)) {
            store.put_object("p/new/a", "of another mount");
        } else {
            its_store.before_list("p/new/", save_once_hidden);
        }
    };
    its_store.before_list("p/new/", save_once_hidden);
    EXPECT_EQ(rename_there_and_wait(std::set<std::string>{"a"}), ENOTEMPTY);
    EXPECT_EQ(store.content("p/new/a"), "of another mount");
}

// All empty markers have one ETag.
TEST_F(RenameRepairsTest, AnAttemptToHideADirectoryThatTakesEffectLateDoesNotHideWhatWasRenamedThere) {
    store.put_object("p/new/", "");
    its_store.delay_write("p/new/", true);
    EXPECT_EQ(rename_there(), 0);
    EXPECT_EQ(tree("new"), kWhole);
    its_store.carry_out_late();
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(store.keys(), kKeysOfNew);
}

// Its journal was in the copy of a state directory.
TEST_F(RenameRepairsTest, ARenamerThatShowsASignOfLifeAfterItWasSaidToBeDeadIsLeftAlone) {
    rename_and_be_killed_while_copying();
    fs->end_renames({only_record()});
    ASSERT_TRUE(eventually([this] { return timer.waiting(kDeadAfter) == 1; }));
    pass(kDeadAfter - Milliseconds(10'000));
    const Result<StoredMarker> record = read_marker(store, clock, only_record());
    ASSERT_TRUE(write_marker(store, only_record(), *record->marker, record->etag));
    pass(Milliseconds(10'000));
    timer.run(kDeadAfter);
    EXPECT_TRUE(eventually([this] { return timer.waits_longer_than(kDeadAfter); }));
    EXPECT_EQ(timer.waiting(kRepairAfter), 0U) << "it is under repair";
    EXPECT_NE(only_record(), "");
}

TEST_F(RenameRepairsTest, AMountThatHasSeenAThousandRenamesStillRepairs) {
    Names records;
    for (int number = 0; number < 1000; ++number) {
        records.push_back(put_record_of(number));
    }
    store.reset_calls();
    static_cast<void>(list());
    // Each is read when it is met, and once more for its state.
    EXPECT_TRUE(eventually([this] { return store.calls(Operation::kGet) >= 2000; }));
    for (const std::string& record : records) {
        ASSERT_TRUE(SyncStore(store).remove(record));
    }
    rename_and_be_killed_while_copying();
    EXPECT_TRUE(repaired());
    EXPECT_EQ(tree("old"), kWhole);
    EXPECT_EQ(tree("new"), std::nullopt);
}

}  // namespace
}  // namespace ckptfs::fs
