// SPDX-License-Identifier: Apache-2.0
// What a mount finds out of a store's conditional deletes, and when.
#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(FileSystemTest, WhereDeleteConditionsAreIgnoredNoRemovalIsAcknowledgedBefore) {
    store.ignore_delete_conditions();
    for (int i = 0; i < 100; ++i) {
        store.put_object("p/dir/" + std::to_string(i), "x");
    }
    const NodeId directory = lookup("dir")->node;
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(lookup(std::to_string(i), directory));
        ASSERT_TRUE(unlink(std::to_string(i), directory));
        EXPECT_FALSE(store.exists("p/dir/" + std::to_string(i)));
    }
    wait_for_threads();
    EXPECT_EQ(store.calls(Operation::kRemoveMany), 1) << "the one that found out";
}

TEST_F(FileSystemTest, IsSaidToProbeTheStoreForAsLongAsAnObjectOfTheProbeMayBeThere) {
    for (int i = 0; i < 100; ++i) {
        store.put_object("p/dir/" + std::to_string(i), "x");
    }
    store.hold(Operation::kRemoveMany);
    const NodeId directory = lookup("dir")->node;
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(lookup(std::to_string(i), directory));
        ASSERT_TRUE(unlink(std::to_string(i), directory));
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    EXPECT_TRUE(fs->statistics().probes_store);
    store.release(Operation::kRemoveMany);
    wait_for_threads();
    EXPECT_FALSE(fs->statistics().probes_store);
}

}  // namespace
}  // namespace ckptfs::fs
