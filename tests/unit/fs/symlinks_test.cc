// SPDX-License-Identifier: Apache-2.0
#include <future>

#include "ckptfs/bucket_layout.h"
#include "file_system_fixture.h"
#include "fs/objects/symlink_object.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class SymlinksTest : public FileSystemTest {
protected:
    Result<Entry> symlink(const std::string& name, const std::string& target, NodeId parent = kRootNode) {
        return answer<Entry>([&](auto reply) { fs->symlink(parent, name, target, {}, reply); });
    }
    Result<std::string> readlink(NodeId node) {
        return answer<std::string>([&](auto reply) { fs->readlink(node, reply); });
    }
    // As another client would.
    void put_link(const std::string& key, const std::string& target) {
        const PutRequest object = symlink_object(key, target);
        store.put_object(key, object.body.to_string(), object.metadata);
    }
    void pass_ttl() { clock.advance(Milliseconds(1001)); }
};

TEST_F(SymlinksTest, IsReadAsItWasMade) {
    const Result<Entry> made = symlink("link", "../elsewhere");
    ASSERT_TRUE(made);
    EXPECT_EQ(made->attributes.type, FileType::kSymlink);
    EXPECT_EQ(made->attributes.size, 12U);
    EXPECT_EQ(made->attributes.mode, 0777U);
    store.reset_calls();
    EXPECT_EQ(readlink(made->node).value(), "../elsewhere");
    EXPECT_EQ(store.calls(), 0);
}

TEST_F(SymlinksTest, OfAnotherMountIsFoundByLookupAndByListing) {
    put_link("p/one", "a");
    put_link("p/two", "/b/c");
    const Result<Entry> one = lookup("one");
    ASSERT_TRUE(one);
    EXPECT_EQ(one->attributes.type, FileType::kSymlink);
    EXPECT_EQ(one->attributes.size, 1U);
    EXPECT_EQ(readlink(one->node).value(), "a");
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    for (const bool with_attributes : {false, true}) {
        const auto entries = answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, 2, 10, with_attributes, reply); });
        ASSERT_EQ(entries->size(), 2U);
        EXPECT_EQ(entries->at(1).name, "two");
        EXPECT_EQ(entries->at(1).entry.attributes.type, FileType::kSymlink);
    }
    fs->release_directory(handle);
}

TEST_F(SymlinksTest, MadeWhileItsDirectoryIsRenamedIsInTheRenamedOne) {
    const NodeId directory = mkdir("d")->node;
    store.put_object("p/d/file", "x");
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("d", "e"); });
    EXPECT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto made = std::async(std::launch::async, [&] { return symlink("link", "file", directory); });
    EXPECT_EQ(made.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(made.get());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/e/", "p/e/file", "p/e/link"}));
}

TEST_F(SymlinksTest, IsNeverMadeOverWhatIsThere) {
    save("file", "x");
    EXPECT_EQ(errno_of(symlink("file", "a")), EEXIST);
    store.put_object("p/other", "by another client");
    EXPECT_EQ(errno_of(symlink("other", "a")), EEXIST);
    EXPECT_EQ(store.content("p/other"), "by another client");
}

TEST_F(SymlinksTest, ARefusedTarget) {
    EXPECT_EQ(errno_of(symlink("link", "")), ENOENT);
    EXPECT_EQ(errno_of(symlink("link", std::string(4096, 'x'))), ENAMETOOLONG);
    EXPECT_EQ(errno_of(symlink(std::string(256, 'x'), "a")), ENAMETOOLONG);
    EXPECT_EQ(errno_of(symlink(std::string(kControlDirectory), "a")), EPERM);
    const std::string longest(4095, 'x');
    EXPECT_EQ(readlink(symlink("link", longest)->node).value(), longest);
}

TEST_F(SymlinksTest, ANameThatChangesItsTypeGetsAnotherNode) {
    const NodeId link = symlink("name", "a")->node;
    store.put_object("p/name", "a file now");
    pass_ttl();
    const Result<Entry> file = lookup("name");
    EXPECT_EQ(file->attributes.type, FileType::kFile);
    EXPECT_NE(file->node, link);
    put_link("p/name", "b");
    EXPECT_EQ(errno_of(open(file->node, O_RDONLY)), ESTALE);
    const Result<Entry> again = lookup("name");
    EXPECT_EQ(again->attributes.type, FileType::kSymlink);
    EXPECT_EQ(readlink(again->node).value(), "b");
}

TEST_F(SymlinksTest, OfAMarkersNameWaitsForOtherFilesAndIsHeldBackByThem) {
    store.inject({Operation::kPut, "p/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const HandleId failed = create("shard", O_WRONLY)->opened.handle;
    ASSERT_TRUE(write(failed, 0, "content"));
    EXPECT_EQ(errno_of(close(failed)), EIO);
    EXPECT_EQ(errno_of(symlink(".metadata", "elsewhere")), EIO);
    EXPECT_FALSE(store.exists("p/.metadata"));
    ASSERT_TRUE(symlink("shard", "elsewhere")) << "which makes the failure good";
    const HandleId open = create("open", O_WRONLY)->opened.handle;
    ASSERT_TRUE(write(open, 0, "content"));
    EXPECT_TRUE(symlink(".metadata", "elsewhere"));
    EXPECT_EQ(store.content("p/open"), "content");
    EXPECT_TRUE(close(open));
}

TEST_F(SymlinksTest, OneThatWasReplacedIsStale) {
    put_link("p/link", "a");
    const NodeId link = lookup("link")->node;
    put_link("p/link", "bb");
    EXPECT_EQ(errno_of(readlink(link)), ESTALE);
    store.remove("p/link", [](const auto&) {});
    EXPECT_EQ(errno_of(readlink(link)), ESTALE);
}

TEST_F(SymlinksTest, RenameMovesIt) {
    ASSERT_TRUE(symlink("link", "a"));
    ASSERT_TRUE(rename("link", "moved"));
    pass_ttl();
    const Result<Entry> moved = lookup("moved");
    EXPECT_EQ(moved->attributes.type, FileType::kSymlink);
    EXPECT_EQ(readlink(moved->node).value(), "a");
}

// The copy has an ETag of its own.
TEST_F(SymlinksTest, IsReadAfterItsDirectoryWasRenamed) {
    put_link("p/d/link", "a");
    put_link("p/d/deep/link", "b");
    const NodeId directory = lookup("d")->node;
    const NodeId link = lookup("link", directory)->node;
    const NodeId deep = lookup("link", lookup("deep", directory)->node)->node;
    ASSERT_TRUE(rename("d", "e"));
    EXPECT_EQ(readlink(link).value_or("?"), "a");
    EXPECT_EQ(readlink(deep).value_or("?"), "b");
    EXPECT_EQ(lookup("link", lookup("e")->node)->node, link);
    EXPECT_EQ(getattr(link)->size, 1U);
}

TEST(SymlinkObject, HostileOnesAreFilesOrErrors) {
    const PutRequest made = symlink_object("p/link", "target");
    ObjectInfo object;
    object.key = made.key;
    object.size = made.body.size();
    object.metadata = made.metadata;
    EXPECT_TRUE(has_marked_size(object.size));
    EXPECT_EQ(symlink_target(object, made.body).value(), "target");
    for (const char* lie : {"", "0", "-1", "7x", "4096", "99999999999999999999"}) {
        object.metadata["ckptfs-symlink"] = lie;
        EXPECT_FALSE(symlink_size(object)) << lie;
    }
    object.metadata["ckptfs-symlink"] = "7";
    EXPECT_FALSE(symlink_target(object, made.body)) << "a zero in the target";
    object.metadata["ckptfs-symlink"] = "6";
    EXPECT_FALSE(symlink_target(object, Payload::from_string("targ"))) << "shorter than it says";
    object.size += 1;
    EXPECT_FALSE(symlink_size(object)) << "a list would take it for a file";
}

}  // namespace
}  // namespace ckptfs::fs
