// SPDX-License-Identifier: Apache-2.0
// What the rename of a small file asks of the store: every program that writes atomically waits for it.
#include <fcntl.h>

#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class RenamedFiles : public FileSystemTest {
protected:
    NodeId save(const std::string& name, const std::string& text) {
        const Result<CreatedFile> file = create(name);
        EXPECT_TRUE(write(file->opened.handle, 0, text));
        EXPECT_TRUE(close(file->opened.handle));
        store.reset_calls();
        return file->entry.node;
    }
    [[nodiscard]] std::string read_back(const std::string& name) {
        const Result<OpenedFile> opened = open(lookup(name)->node, O_RDONLY);
        const Result<std::string> text = read(opened->handle);
        EXPECT_TRUE(release(opened->handle));
        return text ? *text : "";
    }
};

TEST_F(RenamedFiles, AreCopiedWithoutALookAtThem) {
    store.make_etags_of_content();
    save("f.tmp", "text");
    EXPECT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.calls(Operation::kCopy), 1);
    EXPECT_EQ(store.calls(Operation::kRemove), 1);
    EXPECT_EQ(store.calls(), 2);
    EXPECT_EQ(store.content("p/f"), "text");
    EXPECT_FALSE(store.exists("p/f.tmp"));
    EXPECT_EQ(read_back("f"), "text");
}

TEST_F(RenamedFiles, AreTheVersionThatAnotherMountHasSavedSince) {
    store.make_etags_of_content();
    save("f.tmp", "text");
    store.put_object("p/f.tmp", "of another mount");
    EXPECT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.content("p/f"), "of another mount");
    EXPECT_FALSE(store.exists("p/f.tmp"));
    EXPECT_EQ(read_back("f"), "of another mount");
}

TEST_F(RenamedFiles, AreNotThereWhereAnotherMountHasRemovedThem) {
    store.make_etags_of_content();
    save("f.tmp", "text");
    ASSERT_TRUE(answer<void>([&](auto done) { store.remove({"p/f.tmp", {}}, done); }));
    EXPECT_EQ(errno_of(rename("f.tmp", "f")), ENOENT);
    EXPECT_FALSE(store.exists("p/f"));
}

// With SSE-KMS an ETag says nothing of the bytes, so that a store which passes the condition over would go unnoticed.
TEST_F(RenamedFiles, AreLookedAtAfterwardsWhereTheirCopiesHaveOtherETags) {
    save("f.tmp", "text");
    EXPECT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.calls(Operation::kHead), 1);
    EXPECT_EQ(store.calls(Operation::kCopy), 1);
    EXPECT_EQ(store.content("p/f"), "text");
    EXPECT_EQ(read_back("f"), "text");
}

TEST_F(RenamedFiles, AndRemovedOnesAreGoneWhereOnlyListsTellETags) {
    store.describe_without_etags();
    for (const char* name : {"f", "g"}) {
        store.put_object(std::string("p/") + name, "of another mount");
        ASSERT_TRUE(lookup(name));
    }
    EXPECT_TRUE(unlink("f"));
    EXPECT_FALSE(store.exists("p/f"));
    // Another mount saves it before it is removed.
    bool is_pinned = false;
    store.change_removals([&](RemoveRequest& request) { is_pinned = !request.if_match.empty(); });
    EXPECT_TRUE(rename("g", "h"));
    EXPECT_EQ(store.content("p/h"), "of another mount");
    EXPECT_TRUE(is_pinned);
}

// With the bytes of the version that a rename had left there.
TEST_F(RenamedFiles, AreNotTakenForWhatAnEarlierRenameLeftUnderTheirName) {
    store.make_etags_of_content();
    for (const bool is_linked : {false, true}) {
        const NodeId node = save("a", "first");
        const HandleId writing = open(node, O_WRONLY | O_TRUNC)->handle;
        ASSERT_TRUE(write(writing, 0, "second"));
        store.inject({Operation::kRemove, "p/a", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        EXPECT_EQ(errno_of(rename("a", "b")), EACCES);
        ASSERT_TRUE(close(writing));
        ASSERT_EQ(store.content("p/b"), "second");
        const NodeId anew = save("x.tmp", "first");
        if (is_linked) {
            ASSERT_TRUE(unlink("a"));
            ASSERT_TRUE(answer<Entry>([&](auto reply) { fs->link(anew, kRootNode, "a", {kProcess}, reply); }));
        } else {
            ASSERT_TRUE(rename("x.tmp", "a"));
        }
        EXPECT_TRUE(rename("a", "b"));
        EXPECT_EQ(store.content("p/b"), "first");
        EXPECT_FALSE(store.exists("p/a"));
    }
}

// The program is in the directory.
TEST_F(RenamedFiles, ALookupIsNotAnsweredByTheNameThatItsDirectoryHadBefore) {
    store.put_object("p/d/", "");
    store.put_object("p/d/train.log", "text");
    const NodeId directory = lookup("d")->node;
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("d", "e"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    store.hold(Operation::kHead);
    auto found = std::async(std::launch::async, [&] { return lookup("train.log", directory); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    store.release(Operation::kCopy);
    ASSERT_TRUE(eventually([&] { return !store.exists("p/d/train.log"); }));
    store.release(Operation::kHead);
    EXPECT_TRUE(renamed.get());
    const Result<Entry> entry = found.get();
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->attributes.size, 4U);
}

}  // namespace
}  // namespace ckptfs::fs
