// SPDX-License-Identifier: Apache-2.0
// What an earlier repair has set aside, when the rename is undone by another.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fs/objects/copy_ranges.h"
#include "rename_copies_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class SetAside : public RenameCopies {
protected:
    // Where an earlier repair moves this name.
    std::string key_of(const std::string& name) {
        const Result<StoredMarker> record = read_marker(store, clock, only_record());
        return record ? "p/.undone-" + record->marker->rename_id.substr(0, 8) + "/" + name : "";
    }
    // Of all that was set aside under this name.
    std::multiset<std::string> contents(const std::string& name) {
        std::multiset<std::string> all;
        for (const std::string& key : store.keys()) {
            if (key.starts_with("p/.undone-") && key.ends_with("/" + name)) {
                all.insert(store.content(key));
            }
        }
        return all;
    }
};

using Contents = std::multiset<std::string>;

TEST_F(SetAside, IsNotReplacedOnAStoreThatKnowsNoConditionOfCopies) {
    rename_and_be_killed_when_copied();
    save_as(key_of("b"), "earlier");
    remove_source();
    store.inject({Operation::kCopy, key_of("b"), store_error(EIO, "", 304), 0, 1, false});
    ASSERT_TRUE(repaired());
    EXPECT_EQ(contents("b"), Contents({"b", "earlier"}));
    EXPECT_EQ(tree("new"), std::nullopt);
}

// Other clients give no `ckptfs-write`.
TEST_F(SetAside, IsNotTakenForAnotherFileOfItsSize) {
    rename_and_be_killed_when_copied();
    store.put_object(key_of("b"), "1");
    store.put_object("p/new/b", "2");
    remove_source();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(contents("b"), Contents({"1", "2"}));
    EXPECT_EQ(tree("new"), std::nullopt);
}

TEST_F(SetAside, IsNotCopiedAgainWhereItIsLarge) {
    const std::string large(kMultipartCopyThreshold, 'x');
    save_as("p/old/large", large);
    rename_and_be_killed_when_copied();
    save_as("p/new/large", large);
    remove_source();
    const Result<StoredMarker> record = read_marker(store, clock, only_record());
    const Result<NameList> names = read_names(store, names_key(*record->marker));
    bool dead = false;
    HookedStore mortal(store, [&](int) { return dead ? Fate::kFails : Fate::kPasses; });
    mortal.before_removals("p/new/", [&] { dead = true; });
    EXPECT_FALSE(roll_back(mortal, clock, *record->marker, *names, {DeletePins::kHonoured, [] { return true; }}));
    ASSERT_EQ(contents("large").size(), 1);
    store.reset_calls();
    ASSERT_TRUE(repaired());
    EXPECT_EQ(contents("large").size(), 1);
    EXPECT_EQ(store.calls(Operation::kCreateUpload), 0);
    EXPECT_FALSE(store.exists("p/new/large"));
}

}  // namespace
}  // namespace ckptfs::fs
