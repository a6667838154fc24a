// SPDX-License-Identifier: Apache-2.0
// A rename of a directory, and what other mounts acknowledge in its two directories meanwhile.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "fs/objects/marker_objects.h"
#include "rename_copies_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class RenameBesideOthers : public RenameCopies {
protected:
    RenameBesideOthers() { store.put_object("p/new/", ""); }

    // Over the empty directory; `prepare` runs once it is known to be empty.
    Status rename_over(
        ObjectStore& seen, const std::function<void()>& prepare = [] {}) {
        DirectoryRename rename(seen, its_clock, kRepairAfter, {"p/", "p/old/", "p/new/", store.info("p/new/").etag});
        return rename.run({[&] {
                               prepare();
                               its_clock.advance(kRecordLead);
                               return Status{};
                           },
                           [](const std::vector<ObjectInfo>&) { return Status{}; }, [](const Copies&) {}});
    }
    // To a name for which it has no process, long before the source is saved once more.
    void save_below_the_destination() {
        save_as("p/new/a", "of another");
        store.advance_clock(std::chrono::seconds(10));
        save_as("p/old/a", "newer");
    }
    int was_refused_ = 0;
    [[nodiscard]] bool is_hidden(const std::string& key) const {
        return store.exists(key) && may_hide_directory(store.info(key).size);
    }
};

class HiddenSinceALookup : public RenameBesideOthers, public ::testing::WithParamInterface<int> {};

// Whichever list it is that is too late for it, up to the one that finds the directory empty.
TEST_P(HiddenSinceALookup, ADestinationIsNotWrittenOver) {
    ASSERT_TRUE(lookup("old"));
    ASSERT_TRUE(lookup("new"));
    clock.advance(Milliseconds(1001));
    store.hold(Operation::kList);
    auto renamed = std::async(std::launch::async, [&] { return rename("old", "new"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kList, 1));
    for (int list = 0; list < GetParam(); ++list) {
        store.release_one(Operation::kList);
        EXPECT_TRUE(store.wait_until_held(Operation::kList, 1));
    }
    DirectoryMarker other;
    other.prefix = "p/";
    other.source = "p/other/";
    other.destination = "p/new/";
    other.rename_id = "another";
    const Result<PutResponse> hidden = write_marker(store, "p/new/", other, store.info("p/new/").etag);
    store.release(Operation::kList);
    EXPECT_EQ(errno_of(renamed.get()), EBUSY);
    EXPECT_EQ(store.info("p/new/").etag, hidden.value().etag);
}

INSTANTIATE_TEST_SUITE_P(Lists, HiddenSinceALookup, ::testing::Range(0, 4));

// By a mount that has both directories open. Its copy has the ETag of the one that was made here.
TEST_F(RenameBesideOthers, AFileThatAnotherMountRenamesThereIsNotTakenForACopyOfWhatIsGone) {
    store.make_etags_of_content();
    store.put_object("p/old/b", "of both");
    bool is_renamed = false;
    HookedStore hooked(store, [&](int /*request*/) {
        if (!is_renamed && store.exists("p/new/b")) {
            is_renamed = true;
            store.advance_clock(std::chrono::seconds(2));
            CopyRequest copy;
            copy.source_key = "p/old/b";
            copy.key = "p/new/b";
            EXPECT_TRUE(SyncStore(store).copy(copy));
            EXPECT_TRUE(SyncStore(store).remove("p/old/b"));
        }
        return Fate::kPasses;
    });
    EXPECT_EQ(errno_of(rename_over(hooked)), EBUSY);
    EXPECT_TRUE(is_renamed);
    int left = 0;
    for (const std::string& key : store.keys()) {
        left += store.content(key) == "of both" ? 1 : 0;
    }
    EXPECT_GE(left, 1);
}

TEST_F(RenameBesideOthers, ASecondCopyOfWhatWasChangedReplacesNothingOfOthers) {
    // Also where it has the ETag of the first copy.
    for (const std::string& content : {std::string("of another"), store.content("p/old/b")}) {
        save_as("p/old/b", "b");
        bool changed = false;
        HookedStore hooked(store, [&](int) {
            if (!changed && store.exists("p/new/b")) {
                changed = true;
                save_as("p/new/b", content);
                save_as("p/old/b", "newer");
            }
            return Fate::kPasses;
        });
        EXPECT_EQ(errno_of(rename_over(hooked)), EBUSY);
        EXPECT_EQ(store.content("p/new/b"), content);
        EXPECT_EQ(store.content("p/old/b"), "newer");
        ASSERT_TRUE(SyncStore(store).remove("p/new/b"));
    }
}

// As where the key that encrypts the copies is throttled: it says nothing of the condition.
TEST_F(RenameBesideOthers, ARefusalThatMayPassIsNoneOfTheCondition) {
    HookedStore hooked(store, [&](int) {
        if (store.exists("p/new/a") && !store.exists("p/new/b")) {
            save_as("p/new/b", "of another");
        }
        return Fate::kPasses;
    });
    Error throttled = store_error(EIO, "KMS.ThrottlingException", 400);
    throttled.retryable = true;
    store.inject({Operation::kCopy, "p/new/b", throttled, 0, 1, false});
    EXPECT_FALSE(rename_over(hooked));
    EXPECT_EQ(store.content("p/new/b"), "of another");
}

// Also where descriptions tell other times than the answers to copies, and where they tell no ETag.
TEST_F(RenameBesideOthers, ASecondCopyOfWhatWasChangedReplacesTheFirst) {
    for (const auto& describe : {+[](FakeStore&) {}, +[](FakeStore& seen) { seen.describe_to_the_second(); },
                                 +[](FakeStore& seen) { seen.describe_without_etags(); }}) {
        describe(store);
        bool changed = false;
        HookedStore hooked(store, [&](int) {
            if (!changed && store.exists("p/new/b")) {
                changed = true;
                save_as("p/old/b", "newer");
            }
            return Fate::kPasses;
        });
        ASSERT_TRUE(rename_over(hooked));
        EXPECT_EQ(store.content("p/new/b"), "newer");
        EXPECT_EQ(tree("new"), kWhole);
        start_again();
        store.put_object("p/new/", "");
    }
}

TEST_F(RenameBesideOthers, RemovalsNameTheirVersionsWhereItIsNotKnownWhatTheStoreHonours) {
    std::map<std::string, std::string> removed;
    store.change_removals([&](RemoveRequest& request) { removed[request.key] = request.if_match; });
    store.reset_calls();
    ASSERT_TRUE(rename_over(store));
    for (const char* key : {"p/old/", "p/old/a", "p/old/b", "p/old/deep/", "p/old/deep/c"}) {
        EXPECT_NE(removed[key], "") << key;
    }
    // That may be batches in which it ignores them, or for which it refuses them.
    EXPECT_LE(store.calls(Operation::kRemoveMany), 1) << "the record";
}

TEST_F(RenameBesideOthers, WhatWasSavedBeforeTheDestinationWasHiddenStaysWhereNothingWasCopied) {
    HookedStore refusing(store, [&](int) {
        // The list that finds the file; or the names.
        return is_hidden("p/new/") && !is_hidden("p/old/") && !was_refused_++ ? Fate::kFails : Fate::kPasses;
    });
    EXPECT_FALSE(rename_over(refusing, [this] { save_below_the_destination(); }));
    EXPECT_EQ(store.content("p/new/a"), "of another");
    EXPECT_EQ(set_aside(), Files());
    EXPECT_EQ(tree("new"), Tree({"a"}));
    EXPECT_EQ(tree("old"), kWhole);
}

TEST_F(RenameBesideOthers, WhatWasSavedBeforeTheDestinationWasHiddenStaysWhereARepairUndoesTheRename) {
    HookedStore mortal(store, [&](int) { return is_hidden("p/new/") ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_over(mortal, [this] {
        save_below_the_destination();
        store.advance_clock(std::chrono::seconds(20));
    }));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(store.content("p/new/a"), "of another");
    EXPECT_EQ(set_aside(), Files());
    EXPECT_EQ(tree("new"), Tree({"a"}));
}

// It may be a copy that another machine of the store has dated.
TEST_F(RenameBesideOthers, WhatIsHardlyOlderThanTheHiddenDestinationIsNotShownByARepair) {
    HookedStore mortal(store, [&](int) { return is_hidden("p/new/") ? Fate::kFails : Fate::kPasses; });
    EXPECT_FALSE(rename_over(mortal, [this] { save_below_the_destination(); }));
    ASSERT_TRUE(repaired());
    EXPECT_EQ(tree("new"), Tree(std::in_place));
    EXPECT_EQ(set_aside(), (Files{{"a", "of another"}}));
}

TEST_F(RenameBesideOthers, AFileThatIsRenamedBetweenTwoPagesOfTheLastListMovesWithTheDirectory) {
    store.limit_pages(2);
    save_as("p/old/z", "z");
    int lists = 0;
    HookedStore hooked(store, [&](int) {
        const bool between_pages = is_hidden("p/old/") && lists > 0 && store.calls(Operation::kList) == lists + 1;
        if (is_hidden("p/old/") && lists == 0) {
            lists = store.calls(Operation::kList);
        } else if (between_pages && store.exists("p/old/z")) {
            // To one that the first page would have had.
            store.put_object("p/old/0", "z", store.info("p/old/z").metadata);
            EXPECT_TRUE(SyncStore(store).remove("p/old/z"));
        }
        return Fate::kPasses;
    });
    ASSERT_TRUE(rename_over(hooked));
    EXPECT_FALSE(store.exists("p/old/0"));
    EXPECT_EQ(tree("new"), Tree({"0", "a", "b", "deep", "deep/c"}));
    EXPECT_EQ(tree("old"), std::nullopt);
}

// Since the kernel looked.
TEST_F(FileSystemTest, ADirectoryIsNotRenamedOverAFileThatAnotherMountHasSaved) {
    store.put_object("p/step/shard", "ours");
    ASSERT_TRUE(lookup("step"));
    EXPECT_EQ(errno_of(lookup("best")), ENOENT);
    store.put_object("p/best", "another's");
    EXPECT_EQ(errno_of(rename("step", "best")), ENOTDIR);
    EXPECT_EQ(store.content("p/best"), "another's");
    EXPECT_EQ(store.content("p/step/shard"), "ours");
}

}  // namespace
}  // namespace ckptfs::fs
