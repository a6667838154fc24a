// SPDX-License-Identifier: Apache-2.0
// A directory's rename that ends anywhere, as another mount sees it.
#include "fs/moves/directory_rename.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>

#include "directory_rename_fixture.h"
#include "fs/moves/rename_recovery.h"
#include "fs/objects/copy_ranges.h"
#include "fs/objects/marker_objects.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(DirectoryRenameTest, MovesEverything) {
    ASSERT_TRUE(rename("old", "new"));
    EXPECT_EQ(store.keys(), (Names{"p/new/", "p/new/a", "p/new/b", "p/new/deep/", "p/new/deep/c"}));
    EXPECT_EQ(store.content("p/new/"), "");
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
}

TEST_F(DirectoryRenameTest, WhereverItIsKilledTheWholeSourceOrTheWholeDestinationRemains) {
    bool finished = false;
    int back = 0;
    int forward = 0;
    for (int requests = 0; !finished; ++requests) {
        for (const Fate last : {Fate::kFails, Fate::kTakesEffectAndFails}) {
            SCOPED_TRACE("killed after " + std::to_string(requests) +
                         (last == Fate::kFails ? "" : " and one unanswered"));
            bool killed = false;
            HookedStore mortal(store, [&](int request) {
                killed = killed || request >= requests;
                return request < requests ? Fate::kPasses : request == requests ? last : Fate::kFails;
            });
            static_cast<void>(rename_with(mortal));
            finished = !killed;

            const Tree source = tree("old");
            const Tree destination = tree("new");
            EXPECT_FALSE(source && destination);
            EXPECT_TRUE(!source || source == kWhole);
            EXPECT_TRUE(!destination || destination == kWhole);

            ASSERT_TRUE(repaired());
            const Tree source_after = tree("old");
            const Tree destination_after = tree("new");
            EXPECT_NE(source_after.has_value(), destination_after.has_value());
            EXPECT_EQ(source_after ? source_after : destination_after, kWhole);
            EXPECT_TRUE(!source || source_after) << "what was seen is taken back";
            EXPECT_TRUE(!destination || destination_after) << "what was seen is taken back";
            EXPECT_EQ(store.keys().size(), 5U);
            ++(source_after ? back : forward);
            start_again();
        }
    }
    EXPECT_GT(back, 10);
    EXPECT_GT(forward, 5);
}

// It may be late, and others have the names by then: also where this mount has not asked what the store does with that.
TEST_F(DirectoryRenameTest, TheFirstRepairOfAMountNamesTheVersionsThatItRemoves) {
    // Of a rename that is decided, the request that removes its source.
    int removal = 0;
    {
        HookedStore counted(store, [&](int request) {
            removal = store.calls(Operation::kRemoveMany) == 0 ? request : removal;
            return Fate::kPasses;
        });
        ASSERT_TRUE(rename_with(counted));
        start_again();
    }
    HookedStore mortal(store, [&](int request) { return request < removal ? Fate::kPasses : Fate::kFails; });
    static_cast<void>(rename_with(mortal));
    std::mutex mutex;
    std::map<std::string, std::string> removed;
    store.change_removals([&](RemoveRequest& request) {
        const std::lock_guard lock(mutex);
        removed.emplace(request.key, request.if_match);
    });
    ASSERT_TRUE(repaired());
    const std::lock_guard lock(mutex);
    for (const char* key : {"p/old/a", "p/old/b", "p/old/deep/c"}) {
        ASSERT_TRUE(removed.contains(key)) << key;
        EXPECT_NE(removed.at(key), "") << key;
    }
}

TEST_F(DirectoryRenameTest, ARenamerThatWasTakenForDeadFailsAndHarmsNothing) {
    bool finished = false;
    int failed = 0;
    for (int repaired_at = 1; !finished; ++repaired_at) {
        SCOPED_TRACE("repaired before its request " + std::to_string(repaired_at));
        finished = true;
        HookedStore hooked(store, [&](int request) {
            if (request == repaired_at) {
                finished = false;
                EXPECT_TRUE(repaired());
            }
            return Fate::kPasses;
        });
        const Status renamed = rename_with(hooked);
        failed += renamed ? 0 : 1;
        const Tree source = tree("old");
        const Tree destination = tree("new");
        EXPECT_NE(source.has_value(), destination.has_value());
        EXPECT_EQ(source ? source : destination, kWhole);
        EXPECT_EQ(renamed.has_value(), destination.has_value());
        ASSERT_TRUE(repaired());
        EXPECT_EQ(tree("old"), source);
        EXPECT_EQ(tree("new"), destination);
        EXPECT_EQ(store.keys().size(), 5U);
        start_again();
    }
    EXPECT_GT(failed, 5);
}

TEST_F(DirectoryRenameTest, WhatAnotherMountChangesMeanwhileMovesToo) {
    bool changed = false;
    HookedStore hooked(store, [&](int) {
        if (!changed && store.exists("p/new/b")) {
            changed = true;
            store.put_object("p/old/b", "newer");
            store.put_object("p/old/late", "late");
            EXPECT_TRUE(SyncStore(store).remove("p/old/a"));
        }
        return Fate::kPasses;
    });
    ASSERT_TRUE(rename_with(hooked));
    EXPECT_EQ(store.keys(), (Names{"p/new/", "p/new/b", "p/new/deep/", "p/new/deep/c", "p/new/late"}));
    EXPECT_EQ(store.content("p/new/b"), "newer");
}

TEST_F(DirectoryRenameTest, ACopyOfWhatIsGoneIsRemovedAsTheVersionThatWasCopied) {
    HookedStore hooked(store, [this](int /*request*/) {
        if (store.exists("p/new/b") && store.exists("p/old/b")) {
            EXPECT_TRUE(SyncStore(store).remove("p/old/b"));
        }
        return Fate::kPasses;
    });
    std::string pinned;
    store.change_removals(
        [&](RemoveRequest& request) { pinned = request.key == "p/new/b" ? request.if_match : pinned; });
    DirectoryRename rename(hooked, its_clock, kRepairAfter, {"p/", "p/old/", "p/new/", ""});
    ASSERT_TRUE(rename.run({[&] {
                                its_clock.advance(kRecordLead);
                                return Status{};
                            },
                            [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {},
                            [] { return DeletePins::kHonoured; }}));
    EXPECT_FALSE(store.exists("p/new/b"));
    EXPECT_NE(pinned, "");
}

TEST_F(DirectoryRenameTest, OfTwoMountsOneRenames) {
    HookedStore hooked(store, [&](int request) {
        if (request == 4) {
            // The other one is done before.
            EXPECT_EQ(errno_of(rename("old", "third")), 0);
        }
        return Fate::kPasses;
    });
    EXPECT_EQ(errno_of(rename_with(hooked)), EBUSY);
    EXPECT_EQ(tree("third"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(DirectoryRenameTest, WhatAnotherMountRenamesToItsNameMeanwhileIsNotRenamed) {
    for (const char* name : {"a", "b", "deep/", "deep/c"}) {
        ASSERT_TRUE(SyncStore(store).remove(std::string("p/old/") + name));
        store.put_object(std::string("p/src/") + name, name);
    }
    ASSERT_TRUE(lookup("old"));
    bool is_filling = false;
    HookedStore hooked(store, [&](int) {
        if (!is_filling && store.exists("p/old/a")) {
            is_filling = true;
            EXPECT_EQ(errno_of(rename("old", "new")), EBUSY);
        }
        return Fate::kPasses;
    });
    DirectoryRename rename(hooked, its_clock, kRepairAfter, {"p/", "p/src/", "p/old/", store.info("p/old/").etag});
    EXPECT_TRUE(rename.run({[&] {
                                its_clock.advance(kRecordLead);
                                return Status{};
                            },
                            [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {}}));
    EXPECT_TRUE(is_filling);
    EXPECT_EQ(tree("old"), kWhole);
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(DirectoryRenameTest, ARepairThatIsLateDeletesNothingThatWasMadeSince) {
    const auto roll_back_through = [&](ObjectStore& seen) {
        const Result<StoredMarker> marker = read_marker(store, clock, only_record());
        const Result<NameList> names = read_names(store, names_key(*marker->marker));
        return roll_back(seen, clock, *marker->marker, *names, {DeletePins::kHonoured, [] { return true; }});
    };
    rename_and_be_killed_while_copying();
    int requests = 0;
    HookedStore counted(store, [&](int) {
        ++requests;
        return Fate::kPasses;
    });
    ASSERT_TRUE(roll_back_through(counted));
    EXPECT_FALSE(store.exists("p/new/a"));
    start_again();

    rename_and_be_killed_while_copying();
    HookedStore late(store, [&](int request) {
        if (request == requests - 2) {
            store.put_object("p/new/a", "of another");
        }
        return Fate::kPasses;
    });
    ASSERT_TRUE(roll_back_through(late));
    EXPECT_EQ(store.content("p/new/a"), "of another");
}

TEST_F(DirectoryRenameTest, WhatIsHiddenIsTakenByNothingElse) {
    const NodeId file = save("file.partial", "x");
    rename_and_be_killed_while_copying();
    // As the kernel does first.
    const auto look = [this] { EXPECT_EQ(errno_of(lookup("new")), ENOENT); };
    look();
    // What looks into the marker meanwhile lists nothing.
    const int lists = store.calls(Operation::kList);
    EXPECT_EQ(errno_of(create("new")), EBUSY);
    EXPECT_EQ(errno_of(answer<Entry>([&](auto reply) { fs->symlink(kRootNode, "new", "a", {}, reply); })), EBUSY);
    EXPECT_EQ(errno_of(answer<Entry>([&](auto reply) { fs->link(file, kRootNode, "new", {kProcess}, reply); })), EBUSY);
    EXPECT_EQ(errno_of(answer<Entry>([&](auto reply) {
                  fs->make_special(kRootNode, "new", FileType::kFifo, 0600, Caller{kProcess, 0, 0}, reply);
              })),
              EBUSY);
    EXPECT_EQ(errno_of(rename("file.partial", "new")), EBUSY);
    EXPECT_EQ(store.calls(Operation::kList), lists) << "the kernel's lookup is enough";
    EXPECT_EQ(errno_of(mkdir("new")), EBUSY);
    EXPECT_FALSE(store.exists("p/new"));

    ASSERT_TRUE(repaired());
    look();
    EXPECT_TRUE(rename("file.partial", "new"));
    EXPECT_EQ(store.content("p/new"), "x");
}

TEST_F(DirectoryRenameTest, WhatFailedBeforeARenameThatARepairUndoesHoldsTheMarkerBack) {
    add_failure();
    HookedStore mortal(store, [this](int /*request*/) {
        return may_hide_directory(store.info("p/old/").size) ? Fate::kFails : Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(repaired("/.ckptfs/rename"));
    EXPECT_EQ(commit_marker_in("old"), EIO);
    EXPECT_FALSE(store.exists("p/old/.metadata"));
}

TEST_F(DirectoryRenameTest, WhatFailedBeforeARenameThatARepairFinishesHoldsTheMarkerBackUnderItsNewName) {
    add_failure();
    HookedStore mortal(store, [this](int /*request*/) { return is_decided() ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(repaired("/.ckptfs/rename"));
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/new/shard"));
    EXPECT_TRUE(eventually([this] { return !store.exists("p/.ckptfs/failed/old/shard"); }));
    EXPECT_EQ(commit_marker_in("new"), EIO);
    EXPECT_FALSE(store.exists("p/new/.metadata"));
}

TEST_F(DirectoryRenameTest, WhatWasMadeGoodBeforeARenameHoldsNothingBackUnderItsNewName) {
    fail_and_make_good();
    ASSERT_TRUE(rename("old", "new"));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/new/shard"));
    EXPECT_EQ(commit_marker_in("new"), 0);
}

TEST_F(DirectoryRenameTest, WhatWasMadeGoodBeforeARenameThatARepairFinishesHoldsNothingBackUnderItsNewName) {
    fail_and_make_good();
    HookedStore mortal(store, [this](int /*request*/) { return is_decided() ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(repaired("/.ckptfs/rename"));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/new/shard"));
    EXPECT_EQ(commit_marker_in("new"), 0);
}

TEST_F(DirectoryRenameTest, WhatFailsDuringARenameOfADirectoryThatHoldsAMarkerUndoesIt) {
    store.put_object("p/old/.metadata", "metadata");
    ASSERT_TRUE(lookup("old"));
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [this] { return rename("old", "new"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    add_failure();
    store.release(Operation::kCopy);
    EXPECT_EQ(errno_of(renamed.get()), EIO);
    EXPECT_FALSE(store.exists("p/new/"));
    EXPECT_FALSE(store.exists("p/new/.metadata"));
    EXPECT_EQ(store.content("p/old/.metadata"), "metadata");
    EXPECT_TRUE(store.exists("p/.ckptfs/failed/old/shard"));
}

TEST_F(DirectoryRenameTest, ALateCompletionOfACopyReplacesNothing) {
    store.put_object("p/old/large", std::string(kMultipartCopyThreshold, 'x'));
    store.hold(Operation::kCompleteUpload);
    auto renamed = std::async(std::launch::async, [this] { return rename_with(store); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    EXPECT_TRUE(repaired());
    store.put_object("p/new/large", "newer");
    store.release(Operation::kCompleteUpload);
    EXPECT_EQ(errno_of(renamed.get()), EIO);
    EXPECT_EQ(store.content("p/new/large"), "newer");
    EXPECT_EQ(store.open_uploads(), 0);
}

// As a store answers that does not know conditions, with a code or without.
TEST_F(DirectoryRenameTest, IsMadeWithoutConditionsWhereTheStoreKnowsNone) {
    store.inject({Operation::kPut, "p/old/", store_error(EOPNOTSUPP, "NotImplemented", 501), 0, 1, false});
    EXPECT_TRUE(rename_with(store));
    store.inject({Operation::kPut, "p/new/", store_error(EOPNOTSUPP, "", 501), 0, 1, false});
    EXPECT_TRUE(rename_with(store, "p/new/", "p/old/"));
    EXPECT_EQ(tree("old"), kWhole);
}

// The decision takes effect; what its mount hears is that another one was faster.
TEST_F(DirectoryRenameTest, ADecisionWithoutAnAnswerThatARepairFinishedIsNotUndone) {
    Error lost = store_error(ENOENT, "NoSuchKey", 404);
    lost.outcome_unknown = true;
    bool decides = false;
    bool overtaken = false;
    HookedStore hooked(store, [&](int) {
        if (!decides && may_hide_directory(store.info("p/old/").size)) {
            decides = true;
            store.inject({Operation::kPut, only_record(), lost, 0, 1, true});
        }
        if (!overtaken && is_decided()) {
            overtaken = true;
            EXPECT_TRUE(repaired());
        }
        return Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(hooked));
    ASSERT_TRUE(decides);
    EXPECT_TRUE(overtaken || repaired());
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
}

TEST_F(DirectoryRenameTest, ADecisionThatTheRecordTellsIsNotUndone) {
    bool decides = false;
    HookedStore hooked(store, [&](int) {
        if (!decides && may_hide_directory(store.info("p/old/").size)) {
            decides = true;
            store.inject({Operation::kPut, only_record(), store_error(ENOENT, "NoSuchKey", 404), 0, 1, true});
        }
        return Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(hooked));
    ASSERT_TRUE(decides && is_decided());
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
}

class HeldUp : public DirectoryRenameTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(, HeldUp, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Hibernated" : "Awake"; });

TEST_P(HeldUp, ACopyThatWaitsForItsAttemptIsNotSentOnceTheRenameIsLost) {
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [this] { return rename_with(store); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    EXPECT_TRUE(repaired());
    for (const char* name : {"a", "b", "deep/", "deep/c"}) {
        store.put_object(std::string("p/new/") + name, "newer");
    }
    GetParam() ? its_clock.advance_wall(kRepairAfter) : its_clock.advance(kRepairAfter);
    store.release(Operation::kCopy);
    EXPECT_FALSE(renamed.get());
    for (const char* name : {"a", "b", "deep/", "deep/c"}) {
        EXPECT_EQ(store.content(std::string("p/new/") + name), "newer");
    }
    EXPECT_EQ(tree("old"), kWhole);
}

// Another mount may have finished it, and what failed may have been made good there.
TEST_P(HeldUp, WhatFailedIsNotMovedOnceADecidedRenameIsLost) {
    for (const bool is_finished : {false, true}) {
        SCOPED_TRACE(is_finished);
        bool decides = false;
        bool is_to_be_finished = is_finished;
        HookedStore hooked(store, [&](int) {
            if (is_to_be_finished && is_decided()) {
                is_to_be_finished = false;
                EXPECT_TRUE(repaired());
            }
            if (std::exchange(decides, false)) {
                GetParam() ? its_clock.advance_wall(kRepairAfter) : its_clock.advance(kRepairAfter);
            }
            return Fate::kPasses;
        });
        int moved = 0;
        DirectoryRenameSteps steps{[&] {
                                       its_clock.advance(kRecordLead);
                                       return Status{};
                                   },
                                   [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {}};
        steps.note_failures = [&](const std::vector<ObjectInfo>&) {
            decides = true;
            return Status{};
        };
        steps.move_failures = [&] { return ++moved > 0; };
        int left = 0;
        steps.leave_failures = [&] { ++left; };
        DirectoryRename rename(hooked, its_clock, kRepairAfter, {"p/", "p/old/", "p/new/", ""});
        EXPECT_EQ(errno_of(rename.run(steps)), is_finished ? 0 : EIO);
        EXPECT_EQ(left, 1);
        EXPECT_EQ(moved, 0);
        EXPECT_TRUE(repaired());
        EXPECT_EQ(tree("new"), kWhole);
        EXPECT_EQ(tree("old"), std::nullopt);
        start_again();
    }
}

// A list says of it when its upload began.
TEST_F(DirectoryRenameTest, ALateCopyInPartsIsKnownByItsWriteId) {
    DirectoryMarker rename;
    rename.source = "p/old/";
    rename.destination = "p/new/";
    store.put_object("p/new/large", "copy", {{kWriteIdMetadata, "this copy"}});
    const ObjectInfo there = store.info("p/new/large");
    const auto remove_as = [&](const std::string& write_id) {
        const ObjectVersion copy{there.etag, there.size, there.size, there.last_modified + std::chrono::seconds(5)};
        return remove_late_copies(store, rename, {{"p/old/large", {"source", copy, write_id}}},
                                  {DeletePins::kHonoured, {}});
    };
    EXPECT_TRUE(remove_as("of another"));
    EXPECT_TRUE(store.exists("p/new/large"));
    EXPECT_TRUE(remove_as("this copy"));
    EXPECT_FALSE(store.exists("p/new/large"));
}

TEST_F(DirectoryRenameTest, WhatAnotherMountSavesInTheDirectoryThatIsReplacedStays) {
    for (const bool has_marker : {true, false}) {
        SCOPED_TRACE(has_marker);
        if (has_marker) {
            store.put_object("p/new/", "");
        }
        // Before the first request after the record.
        HookedStore hooked(store, [&](int request) {
            if (request == 1) {
                store.put_object("p/new/a", "of another");
            }
            return Fate::kPasses;
        });
        DirectoryRename rename(hooked, its_clock, kRepairAfter,
                               {"p/", "p/old/", "p/new/", has_marker ? store.info("p/new/").etag : ""});
        EXPECT_EQ(errno_of(rename.run({[&] {
                                           its_clock.advance(kRecordLead);
                                           return Status{};
                                       },
                                       [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {}})),
                  ENOTEMPTY);
        EXPECT_EQ(store.content("p/new/a"), "of another");
        EXPECT_EQ(tree("new"), Tree({"a"}));
        EXPECT_EQ(tree("old"), kWhole);
        EXPECT_EQ(store.exists("p/new/"), has_marker);
        EXPECT_EQ(only_record(), "");
        start_again();
    }
}

TEST_F(DirectoryRenameTest, AnObjectOfAMarkersSizeThatHoldsSomethingElseHidesNothing) {
    store.put_object("p/other/", std::string(kDirectoryMarkerSize, 'x'));
    store.put_object("p/other/file", "x");
    EXPECT_TRUE(eventually([this] { return lookup("other").has_value(); }));
    EXPECT_EQ(tree("other"), Tree({"file"}));
}

TEST_F(DirectoryRenameTest, LargeFilesAreCopiedSideBySide) {
    const std::string large(kMultipartCopyThreshold, '\0');
    store.put_object("p/old/large1", large);
    store.put_object("p/old/large2", large);
    store.hold(Operation::kCreateUpload);
    auto renamed = std::async(std::launch::async, [&] { return rename("old", "new"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kCreateUpload, 2));
    store.release(Operation::kCreateUpload);
    ASSERT_TRUE(renamed.get());
    EXPECT_EQ(store.content("p/new/large2").size(), large.size());
    EXPECT_FALSE(store.exists("p/old/large1"));
}

}  // namespace
}  // namespace ckptfs::fs
