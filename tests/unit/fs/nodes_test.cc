// SPDX-License-Identifier: Apache-2.0
#include "fs/state/nodes.h"

#include <gtest/gtest.h>

#include "fs/state/paths.h"

namespace ckptfs::fs {
namespace {

class NodeTableTest : public ::testing::Test {
protected:
    NodePtr add(const NodeTable::Lock& lock, const NodePtr& parent, const std::string& name, FileType type)
        REQUIRES(node_table) {
        NodePtr node = table.link_new(lock, parent, name, type);
        node->lookups = 1;
        return node;
    }

    NodeTable table;
};

TEST_F(NodeTableTest, PathsFollowParents) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr directory = add(lock, table.root(), "d", FileType::kDirectory);
    const NodePtr file = add(lock, directory, "f", FileType::kFile);
    EXPECT_EQ(table.path(lock, *table.root()), "");
    EXPECT_EQ(table.path(lock, *directory), "d/");
    EXPECT_EQ(table.path(lock, *file), "d/f");
    EXPECT_EQ(file->inode, inode_number("d/f"));
}

TEST_F(NodeTableTest, ANewVersionTakesTheNameAndKeepsTheInodeNumber) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr old_version = add(lock, table.root(), "f", FileType::kFile);
    const NodePtr new_version = add(lock, table.root(), "f", FileType::kFile);
    EXPECT_NE(old_version->id, new_version->id);
    EXPECT_EQ(old_version->inode, new_version->inode);
    EXPECT_FALSE(old_version->linked);
    EXPECT_EQ(table.child(lock, table.root(), "f"), new_version);
    EXPECT_EQ(table.find(lock, old_version->id), old_version);
}

TEST_F(NodeTableTest, ANewVersionDoesNotGetTheNumberOfOneThatIsStillOpenForWriting) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr first = add(lock, table.root(), "f", FileType::kFile);
    first->writable_handles = 1;
    const NodePtr second = add(lock, table.root(), "f", FileType::kFile);
    EXPECT_NE(second->inode, first->inode);
    second->writable_handles = 1;
    const NodePtr third = add(lock, table.root(), "f", FileType::kFile);
    EXPECT_NE(third->inode, first->inode);
    EXPECT_NE(third->inode, second->inode);
    // What others hold for reading only cannot be taken for a writer's.
    EXPECT_EQ(add(lock, table.root(), "f", FileType::kFile)->inode, third->inode);
}

TEST_F(NodeTableTest, MovingADirectoryMovesWhatIsBelow) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr directory = add(lock, table.root(), "old", FileType::kDirectory);
    const NodePtr file = add(lock, directory, "f", FileType::kFile);
    table.move(lock, directory, table.root(), "new");
    EXPECT_EQ(table.path(lock, *file), "new/f");
    EXPECT_EQ(table.child(lock, table.root(), "old"), nullptr);
    EXPECT_EQ(table.child(lock, table.root(), "new"), directory);
}

TEST_F(NodeTableTest, ANodeKeepsItsInodeNumberWhenItIsMoved) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr file = add(lock, table.root(), "f", FileType::kFile);
    const NodePtr directory = add(lock, table.root(), "d", FileType::kDirectory);
    const NodePtr below = add(lock, directory, "f", FileType::kFile);
    table.move(lock, file, table.root(), "g");
    table.move(lock, directory, table.root(), "e");
    EXPECT_EQ(file->inode, inode_number("f"));
    EXPECT_EQ(below->inode, inode_number("d/f"));
    EXPECT_NE(add(lock, table.root(), "f", FileType::kFile)->inode, file->inode);
    const NodePtr fresh = add(lock, table.root(), "d", FileType::kDirectory);
    EXPECT_NE(fresh->inode, directory->inode);
    EXPECT_NE(add(lock, fresh, "f", FileType::kFile)->inode, below->inode);
}

TEST_F(NodeTableTest, ANewFileDoesNotGetTheNumberOfARemovedOneThatIsOpen) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr removed = add(lock, table.root(), "f", FileType::kFile);
    removed->removed = true;
    table.unlink(lock, removed);
    EXPECT_NE(add(lock, table.root(), "f", FileType::kFile)->inode, removed->inode);
}

TEST_F(NodeTableTest, ANumberIsFreeAgainWhenItsNodeIsForgotten) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr moved = add(lock, table.root(), "f", FileType::kFile);
    table.move(lock, moved, table.root(), "g");
    table.forget(lock, moved, moved->lookups);
    EXPECT_EQ(add(lock, table.root(), "f", FileType::kFile)->inode, inode_number("f"));
}

TEST_F(NodeTableTest, MovingOntoANameUnlinksTheNodeThatHadIt) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr target = add(lock, table.root(), "target", FileType::kFile);
    const NodePtr source = add(lock, table.root(), "source", FileType::kFile);
    table.move(lock, source, table.root(), "target");
    EXPECT_FALSE(target->linked);
    EXPECT_EQ(table.child(lock, table.root(), "target"), source);
}

TEST_F(NodeTableTest, NodesGoWithTheLastForgetAndNoSooner) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr directory = add(lock, table.root(), "d", FileType::kDirectory);
    const NodePtr file = add(lock, directory, "f", FileType::kFile);
    table.forget(lock, directory, 1);
    EXPECT_EQ(table.find(lock, directory->id), directory) << "a child still needs its path";
    file->open_handles = 1;
    table.forget(lock, file, 1);
    EXPECT_EQ(table.find(lock, file->id), file) << "it is open";
    file->open_handles = 0;
    table.drop_if_unused(lock, file);
    EXPECT_EQ(table.size(lock), 1U) << "only the root is left";
}

TEST_F(NodeTableTest, KnowsWhatLiesBelow) {
    const NodeTable::Lock lock = table.lock();
    const NodePtr directory = add(lock, table.root(), "d", FileType::kDirectory);
    const NodePtr inner = add(lock, directory, "e", FileType::kDirectory);
    const NodePtr file = add(lock, inner, "f", FileType::kFile);
    const NodePtr link = add(lock, inner, "l", FileType::kSymlink);
    add(lock, inner, "s", FileType::kSocket);
    add(lock, table.root(), "g", FileType::kFile);
    EXPECT_TRUE(table.is_below(lock, *inner, *directory));
    EXPECT_FALSE(table.is_below(lock, *directory, *inner));
    EXPECT_EQ(table.objects_below(lock, directory), (std::vector<NodePtr>{file, link}));
}

// A caller that is killed after ESTALE does not look once more.
TEST_F(NodeTableTest, WhatNobodyComesBackToIsForgotten) {
    constexpr SteadyTime kTold{std::chrono::hours(1)};
    const NodeTable::Lock lock = table.lock();
    const NodePtr left = add(lock, table.root(), "left", FileType::kFile);
    const NodeId replaced = add(lock, table.root(), "replaced", FileType::kFile)->id;
    table.expect(lock, *left, {1, false, kTold});
    table.expect(lock, *table.find(lock, replaced), {2, false, kTold});
    table.expect(lock, table.root(), "made later", {3, false, kTold});
    const NodeId left_again = add(lock, table.root(), "replaced", FileType::kFile)->id;
    const NodeId made_later = add(lock, table.root(), "made later", FileType::kFile)->id;
    for (const NodeId id : {left->id, left_again, made_later}) {
        table.forget(lock, table.find(lock, id), 1);
    }
    const NodePtr other = add(lock, table.root(), "other", FileType::kFile);
    table.expect(lock, *other, {4, false, kTold + ExpectedOpen::kFor});
    for (const NodeId id : {left->id, left_again, made_later}) {
        EXPECT_NE(table.find(lock, id), nullptr) << "it may be on its way";
    }
    table.expect(lock, *other, {4, false, kTold + ExpectedOpen::kFor + std::chrono::nanoseconds(1)});
    for (const NodeId id : {left->id, left_again, made_later}) {
        EXPECT_EQ(table.find(lock, id), nullptr);
    }
    EXPECT_EQ(other->expected.size(), 2U);
}

}  // namespace
}  // namespace ckptfs::fs
