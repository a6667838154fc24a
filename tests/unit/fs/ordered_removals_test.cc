// SPDX-License-Identifier: Apache-2.0
// What comes to a name whose rename is under way: its caller was killed, and does not wait for it.
#include <fcntl.h>

#include <future>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class OrderedRemovalsTest : public FileSystemTest {
protected:
    void TearDown() override {
        // Of a test that ended early.
        store.release(Operation::kCopy);
        store.release(Operation::kPut);
    }
};

TEST_F(OrderedRemovalsTest, WhoRemovesWhatIsBeingReplacedRemovesWhatReplacesIt) {
    const HandleId renamed_file = create("f")->opened.handle;
    ASSERT_TRUE(write(renamed_file, 0, "new"));
    ASSERT_TRUE(fsync(renamed_file));
    save("g", "old");
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto removed = std::async(std::launch::async, [&] { return unlink("g"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    EXPECT_EQ(store.content("p/g"), "old");
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(removed.get());
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(errno_of(lookup("g")), ENOENT);
    EXPECT_TRUE(write(renamed_file, 3, "er"));
    EXPECT_TRUE(close(renamed_file)) << "it has no name any more";
    const Result<CreatedFile> made = create("g", O_WRONLY | O_EXCL);
    ASSERT_TRUE(made);
    EXPECT_TRUE(close(made->opened.handle));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
}

TEST_F(OrderedRemovalsTest, WhoRemovesWhatIsBeingRenamedDoesNotFindIt) {
    const HandleId saved = create("f")->opened.handle;
    ASSERT_TRUE(write(saved, 0, "saved"));
    ASSERT_TRUE(fsync(saved));
    save("g", "old");
    for (const auto& [under_way, content] : {std::pair(Operation::kCopy, "saved"), {Operation::kPut, "saved anew"}}) {
        const bool is_dirty = under_way == Operation::kPut;
        if (is_dirty) {
            ASSERT_TRUE(rename("g", "f"));
            save("g", "old");
            ASSERT_TRUE(write(saved, 5, " anew"));
        }
        store.hold(under_way);
        auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
        ASSERT_TRUE(store.wait_until_held(under_way, 1));
        auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
        EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
        store.release(under_way);
        EXPECT_TRUE(renamed.get());
        EXPECT_EQ(errno_of(removed.get()), ENOENT);
        EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
        EXPECT_EQ(store.content("p/g"), content);
    }
    EXPECT_TRUE(close(saved));
}

TEST_F(OrderedRemovalsTest, WhatIsRemovedWhileItIsBeingLinkedKeepsItsNewName) {
    const NodeId source = save("f.tmp", "saved");
    store.hold(Operation::kCopy);
    auto linked = std::async(std::launch::async, [&] {
        return answer<Entry>([&](auto reply) { fs->link(source, kRootNode, "f", Caller{kProcess, 0, 0}, reply); });
    });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto removed = std::async(std::launch::async, [&] { return unlink("f.tmp"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    EXPECT_TRUE(store.exists("p/f.tmp"));
    store.release(Operation::kCopy);
    EXPECT_TRUE(linked.get());
    EXPECT_TRUE(removed.get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/f"});
    EXPECT_EQ(store.content("p/f"), "saved");
}

TEST_F(OrderedRemovalsTest, WhatIsMadeUnderANameThatIsBeingRenamedIsRemoved) {
    save("f", "first");
    save("h", "second");
    store.hold(Operation::kCopy);
    auto first_rename = std::async(std::launch::async, [&] { return rename("f", "g"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    // Here, so that they take their places in this order.
    std::promise<Status> second_rename;
    fs->rename(kRootNode, "h", kRootNode, "f", 0, Caller{kProcess, 0, 0},
               [&](Status status) { second_rename.set_value(status); });
    std::promise<Status> removed;
    fs->unlink(kRootNode, "f", [&](Status status) { removed.set_value(status); });
    EXPECT_TRUE(store.exists("p/h"));
    store.release(Operation::kCopy);
    EXPECT_TRUE(first_rename.get());
    EXPECT_TRUE(second_rename.get_future().get());
    EXPECT_TRUE(removed.get_future().get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
    EXPECT_EQ(store.content("p/g"), "first");
}

TEST_F(OrderedRemovalsTest, ChangesTakeEffectAlsoWhereTheKernelForgotTheirDirectoryMeanwhile) {
    store.put_object("p/d/", "");
    store.put_object("p/d/f", "kept");
    const NodeId directory = lookup("d")->node;
    store.hold(Operation::kCopy);
    auto first_rename = std::async(std::launch::async, [&] { return rename("f", "g", 0, directory); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto second_rename = std::async(std::launch::async, [&] { return rename("g", "h", 0, directory); });
    EXPECT_EQ(second_rename.wait_for(kForAWhile), std::future_status::timeout);
    fs->forget(directory, 1);
    EXPECT_EQ(lookup("d")->node, directory);
    auto created = std::async(std::launch::async, [&] { return create("g", O_WRONLY, directory); });
    EXPECT_EQ(created.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(first_rename.get());
    EXPECT_TRUE(second_rename.get());
    EXPECT_EQ(store.content("p/d/h"), "kept");
    const Result<CreatedFile> made = created.get();
    ASSERT_TRUE(made);
    EXPECT_TRUE(close(made->opened.handle));
    EXPECT_TRUE(store.exists("p/d/g"));
    fs->forget(made->entry.node, 1);
    fs->forget(directory, 1);
    EXPECT_NE(lookup("d")->node, directory) << "nothing keeps it any more";
}

}  // namespace
}  // namespace ckptfs::fs
