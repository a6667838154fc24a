// SPDX-License-Identifier: Apache-2.0
// What other mounts save below the destination of a rename that is undone.
#include "fs/moves/rename_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "fs/moves/rename_recovery.h"
#include "fs/moves/repair_policy.h"
#include "fs/objects/copy_ranges.h"
#include "fs/objects/marker_objects.h"
#include "rename_copies_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(RenameCopies, WhatAnotherMountSavesOverACopyStaysWhereARepairUndoesTheRename) {
    rename_and_be_killed_while_copying();
    save_as("p/new/deep/c", "of another");
    ASSERT_TRUE(repaired());
    EXPECT_EQ(store.content("p/new/deep/c"), "of another");
    EXPECT_EQ(tree("new"), Tree({"deep", "deep/c"}));
    EXPECT_EQ(tree("old"), kWhole);
}

TEST_F(RenameCopies, TheSameBytesThatAnotherMountSavesAreNotACopy) {
    rename_and_be_killed_while_copying();
    save_as("p/new/b", "b");
    ASSERT_EQ(store.info("p/new/b").etag, store.info("p/old/b").etag);
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), Tree({"b"}));
    EXPECT_EQ(tree("old"), kWhole);
}

// It has the write ID of the file that was renamed, as a copy of that has.
TEST_F(RenameCopies, AFileThatAnotherMountRenamesThereIsSetAside) {
    rename_and_be_killed_while_copying();
    store.put_object("p/new/b", "b", store.info("p/old/b").metadata);
    ASSERT_TRUE(SyncStore(store).remove("p/old/b"));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(set_aside(), Files({{"b", "b"}}));
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(tree("old"), Tree({"a", "deep", "deep/c"}));
}

TEST_F(RenameCopies, AFileThatAnotherMountRenamesThereAndSavesAnewIsSetAside) {
    rename_and_be_killed_while_copying();
    store.put_object("p/new/b", "b", store.info("p/old/b").metadata);
    save_as("p/old/b", "newer");
    ASSERT_TRUE(repaired());
    EXPECT_EQ(set_aside(), Files({{"b", "b"}}));
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(RenameCopies, OfADirectoryThatIsGoneNoPartIsShownUnderTheNewName) {
    save_as("p/old/.metadata", "marker");
    rename_and_be_killed_when_copied();
    ASSERT_TRUE(store.exists("p/new/.metadata"));
    remove_source();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(tree("old"), std::nullopt);
    EXPECT_EQ(set_aside().at(".metadata"), "marker");
}

// All of its files have their ETags still, but one.
TEST_F(RenameCopies, OfADirectoryThatIsWrittenAnewNoPartIsShownUnderTheNewName) {
    rename_and_be_killed_when_copied();
    for (const char* name : {"a", "deep/", "deep/c"}) {
        save_as(std::string("p/old/") + name, name);
    }
    save_as("p/old/b", "newer");
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(tree("old"), kWhole);
    EXPECT_EQ(set_aside(), kAll);
}

// As where they are encrypted with keys of their own, or were uploaded in parts.
TEST_F(RenameCopies, OfCopiesWithOtherETagsNoPartIsShownUnderTheNewName) {
    rename_and_be_killed_when_copied();
    for (const auto& [name, content] : kAll) {
        // Other bytes of the same size stand for another ETag of the same.
        store.put_object("p/new/" + name, std::string(content.size(), '?'), store.info("p/old/" + name).metadata);
    }
    remove_source();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(set_aside().size(), kAll.size());
}

TEST_F(RenameCopies, WhatAnotherMountSavesBesideCopiesOfWhatIsGoneIsShownWithoutThem) {
    rename_and_be_killed_when_copied();
    remove_source();
    save_as("p/new/d", "of another");
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), Tree({"d"}));
    EXPECT_EQ(set_aside(), kAll);
}

// Wherever the first repair is killed; the one that goes on is that of a mount of its own.
TEST_F(RenameCopies, WhatIsSetAsideByTwoRepairsIsSetAsideOnce) {
    for (int last = 0;; ++last) {
        rename_and_be_killed_when_copied();
        remove_source();
        const Result<StoredMarker> record = read_marker(store, clock, only_record());
        const Result<NameList> names = read_names(store, names_key(*record->marker));
        HookedStore mortal(store, [last](int request) { return request < last ? Fate::kPasses : Fate::kFails; });
        const bool ended = static_cast<bool>(
            roll_back(mortal, clock, *record->marker, *names, {DeletePins::kHonoured, [] { return true; }}));
        ASSERT_TRUE(repaired());
        EXPECT_EQ(tree("new"), std::nullopt) << last;
        EXPECT_EQ(set_aside(), kAll) << last;
        const Names keys = store.keys();
        EXPECT_EQ(
            std::count_if(keys.begin(), keys.end(), [](const std::string& key) { return key.ends_with("/deep/c"); }),
            1);
        if (ended) {
            return;
        }
        start_again();
    }
}

// Its own mount, made anew.
TEST_F(RenameCopies, OfADirectoryThatIsGoneTheNextMountShowsNoPart) {
    rename_and_be_killed_when_copied();
    remove_source();
    const Milliseconds dead_after = believed_dead_after(kRepairAfter);
    fs->end_renames({only_record()});
    ASSERT_TRUE(eventually([&] { return timer.waiting(dead_after) == 1; }));
    store.advance_clock(dead_after);
    clock.advance(dead_after);
    timer.run(dead_after);
    ASSERT_TRUE(eventually([this] { return only_record().empty(); }));
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(set_aside(), kAll);
}

TEST_F(RenameCopies, WhatIsSavedOverWhatIsSetAsideStaysWithoutConditionalDeletes) {
    store.ignore_delete_conditions();
    rename_and_be_killed_when_copied();
    remove_source();
    const Result<StoredMarker> record = read_marker(store, clock, only_record());
    const Result<NameList> names = read_names(store, names_key(*record->marker));
    bool saved = false;
    HookedStore hooked(store, [&](int) {
        if (!saved && !set_aside().empty()) {
            saved = true;
            save_as("p/new/a", "of another");
        }
        return Fate::kPasses;
    });
    ASSERT_TRUE(roll_back(hooked, clock, *record->marker, *names, {DeletePins::kIgnored, [] { return true; }}));
    ASSERT_TRUE(saved);
    EXPECT_EQ(tree("new"), Tree({"a"}));
    EXPECT_EQ(store.content("p/new/a"), "of another");
    EXPECT_EQ(set_aside(), kAll);
}

// By an earlier repair that was killed, before another mount saved this.
TEST_F(RenameCopies, WhatWasSetAsideBeforeIsNotReplaced) {
    rename_and_be_killed_when_copied();
    const Result<StoredMarker> record = read_marker(store, clock, only_record());
    const std::string earlier = "p/.undone-" + record->marker->rename_id.substr(0, 8) + "/b";
    save_as(earlier, "earlier");
    remove_source();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(store.content(earlier), "earlier");
    const Names keys = store.keys();
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
        return key.starts_with("p/.undone-") && key.ends_with("/b") && key != earlier;
    }));
}

TEST_F(RenameCopies, WhatTheStoreRefusesToSetAsideIsShown) {
    for (const Error& refusal :
         {store_error(ENAMETOOLONG, "KeyTooLongError", 400), store_error(EACCES, "AccessDenied", 403)}) {
        rename_and_be_killed_when_copied();
        remove_source();
        store.inject({Operation::kCopy, "", refusal, 0, 1'000'000, false});
        ASSERT_TRUE(repaired()) << refusal.message;
        EXPECT_EQ(tree("new"), kWhole);
        EXPECT_EQ(set_aside(), Files());
        store.clear_faults();
        start_again();
    }
}

TEST_F(RenameCopies, WhatWouldHaveTooLongANameIsNotSetAside) {
    std::string name;
    for (const std::size_t size : {250U, 250U, 250U, 250U, 10U}) {
        name += (name.empty() ? "" : "/") + std::string(size, 'x');
    }
    save_as("p/old/" + name, "far below");
    rename_and_be_killed_when_copied();
    // Killed before.
    save_as("p/new/" + name, "far below");
    remove_source();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(set_aside(), kAll);
    EXPECT_EQ(tree("new").value_or(Tree::value_type()).count(name), 1);
}

TEST_F(RenameCopies, OfAFileThatIsRemovedMeanwhileNoPartIsShownWhereItsCopyIsLeft) {
    bool removed = false;
    bool dead = false;
    HookedStore mortal(store, [&](int) {
        if (!removed && store.exists("p/new/b")) {
            removed = static_cast<bool>(SyncStore(store).remove("p/old/b"));
        }
        return dead ? Fate::kFails : Fate::kPasses;
    });
    mortal.before_removals("p/new/b", [&] { dead = true; });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(dead && store.exists("p/new/b"));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(set_aside(), Files({{"b", "b"}}));
}

TEST_F(RenameCopies, WhatAnotherMountSavesBeforeTheDirectoryIsHiddenStays) {
    bool saved = false;
    HookedStore hooked(store, [&](int) {
        const std::string record = only_record();
        if (!saved && !record.empty()) {
            saved = true;
            save_as("p/new/a", "of another");
            const auto marker = parse_marker(store.content(record));
            store.inject({Operation::kPut, names_key(*marker), store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        }
        return Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(hooked));
    ASSERT_TRUE(saved);
    EXPECT_EQ(store.content("p/new/a"), "of another");
    EXPECT_EQ(tree("new"), Tree({"a"}));
    EXPECT_EQ(tree("old"), kWhole);
}

// What other programs save has no write ID: of equal size it looks like a copy, but for its age.
TEST_F(RenameCopies, WhatAnotherProgramSavedLongBeforeTheDirectoryIsHiddenStays) {
    store.put_object("p/old/a", "a");
    store.put_object("p/new/a", "z");
    store.advance_clock(Milliseconds(60000));
    // Killed before it has looked whether the destination is empty.
    HookedStore mortal(store, [&](int) { return store.exists("p/new/") ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(store.exists("p/new/"));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(store.content("p/new/a"), "z");
    EXPECT_EQ(tree("new"), Tree({"a"}));
}

// The store carries out the first of two equal requests long after the second was answered.
TEST_F(RenameCopies, AMarkerThatComesAfterTheEndOfItsRenameDeletesNothing) {
    save_as("p/old/large", std::string(kMultipartCopyThreshold, 'x'));
    std::string pending;
    HookedStore seen(store, [&](int) {
        pending = pending.empty() ? store.content("p/new/") : pending;
        return Fate::kPasses;
    });
    ASSERT_TRUE(rename_with(seen));
    const auto marker = parse_marker(pending);
    ASSERT_TRUE(marker);
    for (const bool is_name_used_again : {false, true}) {
        if (is_name_used_again) {
            save_as("p/old/large", std::string(kMultipartCopyThreshold, 'y'));
            save_as("p/old/a", "b");
        }
        const std::vector<std::string> whole = store.keys();
        store.advance_clock(Milliseconds(1000));
        store.put_object("p/new/", pending);
        ASSERT_TRUE(roll_back_without_record(store, clock, *marker, {}, {DeletePins::kHonoured, [] { return true; }}));
        EXPECT_EQ(store.keys(), whole);
        EXPECT_NE(tree("new"), std::nullopt);
    }
}

TEST_F(RenameCopies, ADirectoryThatAnotherMountHasMovedIsGone) {
    remove_source();
    const std::vector<std::string> before = store.keys();
    EXPECT_EQ(errno_of(rename_with(store)), ENOENT);
    EXPECT_EQ(store.keys(), before);
}

// A process that has looked the destination up before sees single files of it.
TEST_F(RenameCopies, CommitMarkersAreCopiedWhenAllElseIs) {
    save_as("p/old/large", std::string(kMultipartCopyThreshold, 'x'));
    save_as("p/old/.metadata", "complete");
    bool came_last = true;
    HookedStore seen(store, [&](int) {
        came_last = came_last && (!store.exists("p/new/.metadata") || store.exists("p/new/large"));
        return Fate::kPasses;
    });
    DirectoryRename rename(seen, its_clock, kRepairAfter, {"p/", "p/old/", "p/new/", "", {".metadata"}});
    ASSERT_TRUE(rename.run({[this] {
                                its_clock.advance(kRecordLead);
                                return Status{};
                            },
                            [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {},
                            [] { return DeletePins::kHonoured; }}));
    EXPECT_TRUE(store.exists("p/new/.metadata"));
    EXPECT_TRUE(came_last);
}

TEST_F(RenameCopies, ALargeFileThatAnotherMountSavesMeanwhileStays) {
    save_as("p/old/large", std::string(kMultipartCopyThreshold, 'x'));
    store.hold(Operation::kCompleteUpload);
    auto renamed = std::async(std::launch::async, [this] { return rename_with(store); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    save_as("p/new/large", "of another");
    store.release(Operation::kCompleteUpload);
    EXPECT_EQ(errno_of(renamed.get()), EBUSY);
    EXPECT_EQ(store.content("p/new/large"), "of another");
    EXPECT_EQ(tree("new"), Tree({"large"}));
    EXPECT_EQ(store.content("p/old/large").size(), kMultipartCopyThreshold);
}

TEST_F(RenameCopies, AFileThatAnotherMountSavesBeforeItIsCopiedStays) {
    bool saved = false;
    HookedStore hooked(store, [&](int) {
        if (!saved && store.exists("p/new/a")) {
            saved = true;
            save_as("p/new/b", "b");
        }
        return Fate::kPasses;
    });
    const std::string source = store.info("p/old/b").metadata.at(kWriteIdMetadata);
    EXPECT_EQ(errno_of(rename_with(hooked)), EBUSY);
    ASSERT_TRUE(saved);
    EXPECT_NE(store.info("p/new/b").metadata.at(kWriteIdMetadata), source);
    EXPECT_EQ(tree("new"), Tree({"b"}));
    EXPECT_EQ(tree("old"), kWhole);
}

TEST_F(RenameCopies, AFileThatAnotherMountSavesInTheSecondOfItsSourceStays) {
    bool saved = false;
    HookedStore hooked(store, [&](int) {
        if (!saved && store.exists("p/new/a")) {
            saved = true;
            // This store tells times of less than a second apart: it looks no younger than its source.
            store.advance_clock(Milliseconds(-1000));
            store.put_object("p/new/deep/c", "deep/c", {{kWriteIdMetadata, "of another"}});
            store.advance_clock(Milliseconds(1000));
        }
        return Fate::kPasses;
    });
    EXPECT_EQ(errno_of(rename_with(hooked)), EBUSY);
    ASSERT_TRUE(saved);
    EXPECT_EQ(tree("new"), Tree({"deep", "deep/c"}));
    EXPECT_EQ(set_aside(), Files());
    EXPECT_EQ(tree("old"), kWhole);
}

// The next attempt finds it there.
TEST_F(RenameCopies, ACopyWhoseAnswerWasLostIsNotTakenForAnothers) {
    for (const char* name : {"b", "deep/c"}) {
        store.inject({Operation::kCopy, std::string("p/new/") + name, store_error(EEXIST, "PreconditionFailed", 412), 0,
                      1, true});
    }
    // Of another client.
    store.put_object("p/old/deep/c", "deep/c");
    EXPECT_TRUE(rename_with(store));
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
}

TEST_F(RenameCopies, ACopyWhoseAnswerWasLostIsReplacedWhereItsSourceIs) {
    bool changed = false;
    HookedStore hooked(store, [&](int) {
        if (!changed && store.exists("p/new/b")) {
            changed = true;
            save_as("p/old/b", "newer");
        }
        return Fate::kPasses;
    });
    store.inject({Operation::kCopy, "p/new/b", store_error(EEXIST, "PreconditionFailed", 412), 0, 1, true});
    EXPECT_TRUE(rename_with(hooked));
    ASSERT_TRUE(changed);
    EXPECT_EQ(store.content("p/new/b"), "newer");
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(tree("old"), std::nullopt);
}

TEST_F(RenameCopies, WhereTheStoreDoesNotTellWhoseACopyIsItsErrorIsAnswered) {
    bool refused = false;
    HookedStore hooked(store, [&](int) {
        if (!refused && store.exists("p/new/b")) {
            refused = true;
            store.inject({Operation::kHead, "p/old/b", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        }
        return Fate::kPasses;
    });
    store.inject({Operation::kCopy, "p/new/b", store_error(EEXIST, "PreconditionFailed", 412), 0, 1, true});
    EXPECT_EQ(errno_of(rename_with(hooked)), EACCES);
    ASSERT_TRUE(refused);
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(tree("old"), kWhole);
}

TEST_F(RenameCopies, AStoreThatDoesNotKnowTheConditionIsAskedWithout) {
    store.inject({Operation::kCopy, "p/new/b", store_error(EIO, "", 304), 0, 1, false});
    EXPECT_TRUE(rename_with(store));
    EXPECT_EQ(tree("new"), kWhole);
}

TEST_F(RenameCopies, ASourceThatIsReplacedAsItIsCopiedIsNotTakenForAnothersFile) {
    bool changed = false;
    HookedStore hooked(store, [&](int) {
        if (!changed && store.exists("p/new/a")) {
            changed = true;
            save_as("p/old/b", "newer");
            // Which of the conditions failed, a store does not say.
            store.inject({Operation::kCopy, "p/new/b", store_error(EEXIST, "PreconditionFailed", 412), 0, 1, false});
        }
        return Fate::kPasses;
    });
    EXPECT_TRUE(rename_with(hooked));
    ASSERT_TRUE(changed);
    EXPECT_EQ(store.content("p/new/b"), "newer");
}

TEST_F(RenameCopies, ALargeCopyIsKnownToARepair) {
    save_as("p/old/large", std::string(kMultipartCopyThreshold, 'x'));
    HookedStore mortal(store, [&](int) { return store.exists("p/new/large") ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(store.exists("p/new/large"));
    ASSERT_TRUE(repaired());
    EXPECT_FALSE(store.exists("p/new/large"));
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(RenameCopies, ACopyOfAnEarlierVersionIsNotShownWhereARepairUndoesTheRename) {
    bool changed = false;
    HookedStore mortal(store, [&](int) {
        if (!changed && store.exists("p/new/b")) {
            changed = true;
            save_as("p/old/b", "newer");
        }
        return written_names().size() > 4 ? Fate::kFails : Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(changed);
    EXPECT_EQ(store.content("p/new/b"), "b");
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), std::nullopt);
    EXPECT_EQ(set_aside(), Files({{"b", "b"}}));
    EXPECT_EQ(store.content("p/old/b"), "newer");
}

TEST_F(RenameCopies, WhatChangedMeanwhileHasOneNameWhereARepairFinishesTheRename) {
    bool changed = false;
    HookedStore mortal(store, [&](int) {
        if (!changed && store.exists("p/new/b")) {
            changed = true;
            save_as("p/old/b", "newer");
        }
        return is_decided() ? Fate::kFails : Fate::kPasses;
    });
    EXPECT_FALSE(rename_with(mortal));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("old"), std::nullopt);
    EXPECT_EQ(tree("new"), kWhole);
    EXPECT_EQ(store.content("p/new/b"), "newer");
}

}  // namespace
}  // namespace ckptfs::fs
