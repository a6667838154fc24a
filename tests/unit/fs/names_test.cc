// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>

#include <future>
#include <set>

#include "ckptfs/bucket_layout.h"
#include "file_system_fixture.h"
#include "fs/state/nodes.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

using Names = std::vector<std::string>;

TEST_F(FileSystemTest, LookupTellsFilesDirectoriesAndNothing) {
    store.put_object("p/file", "content");
    store.put_object("p/dir/below", "x");
    EXPECT_EQ(lookup("file")->attributes.type, FileType::kFile);
    EXPECT_EQ(lookup("file")->attributes.size, 7U);
    EXPECT_EQ(lookup("dir")->attributes.type, FileType::kDirectory);
    EXPECT_EQ(errno_of(lookup("nothing")), ENOENT);
    EXPECT_EQ(errno_of(lookup(std::string(256, 'x'))), ENAMETOOLONG);
}

TEST_F(FileSystemTest, PositiveAnswersLiveForTheTtlAndNegativeOnesNot) {
    store.put_object("p/file", "content");
    ASSERT_TRUE(lookup("file"));
    store.reset_calls();
    clock.advance(Milliseconds(900));
    EXPECT_EQ(lookup("file")->valid_for, Milliseconds(100)) << "for the kernel it does not begin again";
    EXPECT_EQ(store.calls(), 0);
    clock.advance(Milliseconds(101));
    ASSERT_TRUE(lookup("file"));
    EXPECT_EQ(store.calls(), 2);
    EXPECT_FALSE(lookup("later"));
    store.put_object("p/later", "x");
    EXPECT_TRUE(lookup("later"));
}

TEST_F(FileSystemTest, SmallFilesCostTheirLookupAndOneRequestEach) {
    const NodeId directory = mkdir("dir")->node;
    store.reset_calls();
    for (const char* name : {"a", "b", "c"}) {
        EXPECT_EQ(errno_of(lookup(name, directory)), ENOENT);
        const HandleId handle = create(name, O_WRONLY, directory)->opened.handle;
        ASSERT_TRUE(write(handle, 0, "x"));
        ASSERT_TRUE(close(handle));
    }
    EXPECT_EQ(store.calls(), 3 * (2 + 1));
}

TEST_F(FileSystemTest, ListsEveryKeyOnceAndHidesWhatCannotBeAPath) {
    Names expected = {".", "..", "dir"};
    store.put_object("p/dir/below", "x");
    store.put_object("p/dir//odd", "x");
    store.put_object("p/" + std::string(kControlDirectory) + "/mounts/1", "x");
    store.put_object("p2/other", "x");
    for (int i = 0; i < 2500; ++i) {
        std::string name = "f" + std::to_string(10'000 + i);
        store.put_object("p/" + name, "");
        expected.push_back(std::move(name));
    }
    EXPECT_EQ(list(), expected);
    EXPECT_EQ(list(lookup("dir")->node), (Names{".", "..", "below"}));
}

TEST_F(FileSystemTest, ANameThatTheStoreCannotHaveIsNotThere) {
    store.inject({Operation::kHead, "p/caf\xe9", store_error(EINVAL, "InvalidURI", 400), 0, 1, false});
    EXPECT_EQ(errno_of(lookup("caf\xe9")), ENOENT);
}

TEST_F(FileSystemTest, AListingShowsWhatIsSavedWhileItIsMade) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "x"));
    store.hold_answers(Operation::kList);
    auto names = std::async(std::launch::async, [this] { return list(); });
    ASSERT_TRUE(store.wait_until_held(Operation::kList, 2));
    clock.advance(Milliseconds(1));
    EXPECT_TRUE(close(handle));
    store.release(Operation::kList);
    EXPECT_EQ(names.get(), (Names{".", "..", "f"}));
}

TEST_F(FileSystemTest, AListingHidesNothingThatComesAfterIt) {
    const NodeId directory = mkdir("dir")->node;
    EXPECT_EQ(list(directory), (Names{".", ".."}));
    EXPECT_EQ(errno_of(lookup("new", directory)), ENOENT);
    store.put_object("p/dir/new", "x");
    EXPECT_TRUE(lookup("new", directory));
}

TEST_F(FileSystemTest, DirectoriesAreMadeAndRemoved) {
    const NodeId directory = mkdir("dir")->node;
    EXPECT_TRUE(store.exists("p/dir/"));
    EXPECT_EQ(errno_of(mkdir("dir")), EEXIST);
    EXPECT_EQ(errno_of(mkdir(std::string(kControlDirectory))), EPERM);
    const HandleId handle = create("f", O_WRONLY, directory)->opened.handle;
    EXPECT_EQ(errno_of(rmdir("dir")), ENOTEMPTY) << "a file is being written in it";
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(errno_of(rmdir("dir")), ENOTEMPTY);
    ASSERT_TRUE(unlink("f", directory));
    EXPECT_TRUE(rmdir("dir"));
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(errno_of(lookup("dir")), ENOENT);
}

TEST_F(FileSystemTest, AnImpliedDirectoryOutlivesItsLastKey) {
    store.put_object("p/dir/only", "x");
    ASSERT_TRUE(unlink("only", lookup("dir")->node));
    EXPECT_EQ(store.keys(), Names{"p/dir/"});
}

TEST_F(FileSystemTest, RenameOfAFileReplacesItsTarget) {
    store.put_object("p/a", "new");
    store.put_object("p/b", "old");
    ASSERT_TRUE(lookup("b"));
    ASSERT_TRUE(rename("a", "b"));
    EXPECT_EQ(store.keys(), Names{"p/b"});
    EXPECT_EQ(store.content("p/b"), "new");
    EXPECT_EQ(lookup("b")->attributes.size, 3U);
    EXPECT_EQ(errno_of(lookup("a")), ENOENT);
}

TEST_F(FileSystemTest, RenameNoReplaceAsksTheBucket) {
    store.put_object("p/a", "a");
    store.put_object("p/b", "b");
    EXPECT_EQ(errno_of(rename("a", "b", RENAME_NOREPLACE)), EEXIST);
    EXPECT_TRUE(rename("a", "c", RENAME_NOREPLACE));
    EXPECT_EQ(errno_of(rename("b", "c", RENAME_EXCHANGE)), EINVAL);
}

TEST_F(FileSystemTest, RenameOfAFileStillInMemoryGoesStraightToItsNewName) {
    const HandleId handle = create("tmp")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    store.reset_calls();
    ASSERT_TRUE(rename("tmp", "final"));
    EXPECT_EQ(store.content("p/final"), "content");
    EXPECT_EQ(store.calls(Operation::kPut), 1);
    EXPECT_EQ(store.calls(Operation::kCopy), 0);
    ASSERT_TRUE(write(handle, 7, "!"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.keys(), Names{"p/final"});
    EXPECT_EQ(store.content("p/final"), "content!");
}

TEST_F(FileSystemTest, RenameOfASyncedOpenFileMovesLaterWritesToo) {
    const HandleId handle = create("tmp")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    ASSERT_TRUE(fsync(handle));
    ASSERT_TRUE(rename("tmp", "final"));
    ASSERT_TRUE(write(handle, 7, "!"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.keys(), Names{"p/final"});
    EXPECT_EQ(store.content("p/final"), "content!");
}

TEST_F(FileSystemTest, AReaderSurvivesTheRenameOfItsFile) {
    store.put_object("p/a", std::string(3 << 20, 'x'));
    const HandleId handle = open(lookup("a")->node, O_RDONLY)->handle;
    ASSERT_TRUE(rename("a", "b"));
    EXPECT_EQ(read(handle, 0, 10).value_or("?"), std::string(10, 'x'));
}

TEST_F(FileSystemTest, AWriterWhoseNameIsRenamedOverPublishesNothing) {
    const HandleId handle = create("target")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "lost"));
    store.put_object("p/source", "kept");
    ASSERT_TRUE(rename("source", "target"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/target"), "kept");
}

TEST_F(FileSystemTest, AFailedRenameLeavesTheFileThatItWasToReplace) {
    const HandleId handle = create("target")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "kept"));
    store.put_object("p/source", "other");
    store.inject({Operation::kCopy, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(errno_of(rename("source", "target")), EACCES);
    EXPECT_TRUE(write(handle, 4, "!"));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/target"), "kept!");
    EXPECT_EQ(store.content("p/source"), "other");
}

TEST_F(FileSystemTest, AFailedRenameOfAFileInMemoryLeavesTheOneItWasToReplace) {
    const HandleId target = create("target")->opened.handle;
    ASSERT_TRUE(write(target, 0, "kept"));
    const HandleId source = create("source")->opened.handle;
    ASSERT_TRUE(write(source, 0, "other"));
    store.inject({Operation::kPut, "p/target", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_FALSE(rename("source", "target"));
    EXPECT_TRUE(close(target));
    EXPECT_EQ(store.content("p/target"), "kept");
    static_cast<void>(close(source));
}

TEST_F(FileSystemTest, WhatAnotherMountWritesUnderTheOldNameMeanwhileStays) {
    store.put_object("p/a", "moved");
    store.hold(Operation::kRemove);
    auto renamed = std::async(std::launch::async, [&] { return rename("a", "b"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
    store.put_object("p/a", "newer");
    store.release(Operation::kRemove);
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(store.content("p/a"), "newer");
    EXPECT_EQ(store.content("p/b"), "moved");
}

TEST_F(FileSystemTest, AnUnlinkRemovesTheVersionThatIsThere) {
    store.put_object("p/a", "older");
    ASSERT_TRUE(lookup("a"));
    store.put_object("p/a", "newer");
    EXPECT_TRUE(unlink("a"));
    EXPECT_FALSE(store.exists("p/a"));
}

TEST_F(FileSystemTest, AStoreThatRefusesTheVersionItShowsIsAskedWithout) {
    store.put_object("p/a", "a");
    store.change_removals([](RemoveRequest& request) { request.if_match += request.if_match.empty() ? "" : "?"; });
    ASSERT_TRUE(lookup("a"));
    EXPECT_TRUE(unlink("a"));
    EXPECT_FALSE(store.exists("p/a"));
    store.put_object("p/b", "b");
    EXPECT_TRUE(rename("b", "c"));
    EXPECT_FALSE(store.exists("p/b"));
}

TEST_F(FileSystemTest, RenameOfADirectoryMovesEverythingBelow) {
    const NodeId directory = mkdir("old")->node;
    store.put_object("p/old/deep/file", "x");
    store.put_object("p/older", "stays");
    const HandleId handle = create("open", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "unsynced"));
    ASSERT_TRUE(rename("old", "new"));
    EXPECT_EQ(store.keys(), (Names{"p/new/", "p/new/deep/file", "p/new/open", "p/older"}));
    EXPECT_EQ(store.content("p/new/open"), "unsynced");
    ASSERT_TRUE(write(handle, 8, "!"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/new/open"), "unsynced!");
    EXPECT_EQ(errno_of(lookup("old")), ENOENT);
}

TEST_F(FileSystemTest, AFileThatMayNotBeDeletedKeepsItsNameAndIsNotItsCopy) {
    const NodeId old = save("old", "content");
    store.inject({Operation::kRemove, "p/old", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    const Status renamed = rename("old", "new");
    EXPECT_EQ(errno_of(renamed), EACCES);
    EXPECT_NE(renamed.error().message.find("p/old was copied to p/new"), std::string::npos);
    const Result<Entry> before = lookup("old");
    const Result<Entry> copy = lookup("new");
    ASSERT_TRUE(before && copy);
    EXPECT_EQ(before->node, old);
    EXPECT_NE(copy->node, old);
    EXPECT_NE(copy->attributes.inode, before->attributes.inode);
    const Result<OpenedFile> opened = open(old, O_RDONLY);
    ASSERT_TRUE(opened);
    EXPECT_EQ(*read(opened->handle), "content");
    EXPECT_TRUE(close(opened->handle));
    EXPECT_TRUE(rename("old", "new"));
    EXPECT_EQ(store.keys(), Names{"p/new"});
}

TEST_F(FileSystemTest, ADirectoryThatCannotBeCopiedStaysAsItWas) {
    mkdir("old");
    store.put_object("p/old/a", "a");
    store.put_object("p/old/b", "b");
    const Names before = store.keys();
    store.inject({Operation::kCopy, "p/new/b", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(errno_of(rename("old", "new")), EACCES);
    EXPECT_EQ(store.keys(), before);
}

TEST_F(FileSystemTest, ADirectoryIsNotRenamedOntoOneThatHoldsSomething) {
    mkdir("a");
    mkdir("b");
    EXPECT_TRUE(rename("a", "b"));
    mkdir("c");
    store.put_object("p/b/file", "x");
    EXPECT_EQ(errno_of(rename("c", "b")), ENOTEMPTY);
}

TEST_F(FileSystemTest, ADirectoryIsNotRenamedOntoOneThatHoldsAFileThatIsNotSavedYet) {
    const NodeId source = mkdir("a")->node;
    const HandleId kept = create("file", O_WRONLY, source)->opened.handle;
    ASSERT_TRUE(write(kept, 0, "renamed"));
    ASSERT_TRUE(close(kept));
    const NodeId target = mkdir("b")->node;
    const HandleId handle = create("file", O_WRONLY, target)->opened.handle;
    EXPECT_EQ(errno_of(rename("a", "b")), ENOTEMPTY) << "nothing was written to it";
    ASSERT_TRUE(write(handle, 0, "of the other"));
    EXPECT_EQ(errno_of(rename("a", "b")), ENOTEMPTY);
    ASSERT_TRUE(unlink("file", target));
    EXPECT_TRUE(rename("a", "b")) << "what has no name is in no directory";
    EXPECT_TRUE(write(handle, 12, "leads nowhere"));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/b/file"), "renamed");
}

// Another mount has just replaced it: the pages that the kernel has are of another version than what was renamed.
TEST_F(FileSystemTest, ARenameTakesNoPagesOfAnOldVersionAlong) {
    for (const char* name : {"old", "new"}) {
        store.put_object(std::string("p/dir/") + name, "first version");
    }
    const NodeId directory = lookup("dir")->node;
    const NodeId replaced = lookup("old", directory)->node;
    const NodeId same = lookup("new", directory)->node;
    for (const NodeId node : {replaced, same}) {
        const OpenedFile file = *open(node, O_RDONLY);
        EXPECT_EQ(*read(file.handle), "first version");
        ASSERT_TRUE(close(file.handle));
    }
    store.put_object("p/dir/old", "other version");
    ASSERT_TRUE(rename("dir", "moved"));
    EXPECT_EQ(errno_of(open(replaced, O_RDONLY)), ESTALE);
    const NodeId moved = lookup("moved")->node;
    const OpenedFile fresh = *open(lookup("old", moved)->node, O_RDONLY);
    EXPECT_FALSE(fresh.keep_cache);
    EXPECT_EQ(*read(fresh.handle), "other version");
    EXPECT_TRUE(open(same, O_RDONLY)->keep_cache) << "its bytes are the same";
}

TEST_F(FileSystemTest, ListingsMakeNoNodesBeyondABound) {
    constexpr std::size_t kFiles = NodeTable::kMost + 3000;
    for (std::size_t file = 0; file < kFiles; ++file) {
        store.put_object("p/" + std::to_string(1'000'000 + file), "");
    }
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    std::size_t without_node = 0;
    std::uint64_t offset = 0;
    for (;;) {
        const auto entries = answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, offset, 1000, true, reply); });
        ASSERT_TRUE(entries);
        if (entries->empty()) {
            break;
        }
        for (const DirectoryEntry& entry : *entries) {
            without_node += entry.entry.node == 0 ? 1 : 0;
            EXPECT_NE(entry.entry.attributes.inode, 0U);
            offset = entry.next_offset;
        }
    }
    EXPECT_EQ(offset, kFiles + 2);
    EXPECT_GE(without_node, 3000U);
    EXPECT_EQ(fs->statistics().names_known, NodeTable::kMost);
    fs->release_directory(handle);
    // Those that it brought push out others; this kernel gives none back.
    EXPECT_GE(kernel_cache.entries.size(), NodeTable::kMost - NodeTable::kMostUnused);

    // So do names that are looked up, the oldest first.
    kernel_cache.entries.clear();
    for (std::size_t file = kFiles - 10; file < kFiles; ++file) {
        ASSERT_TRUE(lookup(std::to_string(1'000'000 + file)));
    }
    EXPECT_GE(kernel_cache.entries.size(), 18U);
    EXPECT_EQ(std::set<std::string>(kernel_cache.entries.begin(), kernel_cache.entries.end()).size(),
              kernel_cache.entries.size());
}

// A program may read the first names of a directory, and the others when some of them are gone.
TEST_F(FileSystemTest, AListingDoesNotBringBackWhatWasRemovedSince) {
    for (const char* key : {"p/a", "p/b", "p/c"}) {
        store.put_object(key, "text");
    }
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    const auto read_names = [&](std::uint64_t offset, std::size_t most) {
        return *answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, offset, most, true, reply); });
    };
    ASSERT_EQ(read_names(2, 1).back().name, "a");
    ASSERT_TRUE(lookup("b") && unlink("b"));
    for (const DirectoryEntry& entry : read_names(3, 7)) {
        EXPECT_EQ(entry.entry.node == 0, entry.name == "b") << entry.name;
    }
    EXPECT_EQ(errno_of(lookup("b")), ENOENT);
    EXPECT_TRUE(create("b", O_WRONLY | O_EXCL));
    fs->release_directory(handle);
}

TEST_F(FileSystemTest, AListingThatWasReadLongAgoIsNotBelieved) {
    store.put_object("p/a", "text");
    store.put_object("p/b", "text");
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    const auto read_names = [&](std::uint64_t offset) {
        return *answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, offset, 1, true, reply); });
    };
    ASSERT_EQ(read_names(2).back().name, "a");
    store.put_object("p/b", "longer text");
    clock.advance(std::chrono::minutes(10));
    EXPECT_EQ(read_names(3).at(0).entry.node, 0U);
    EXPECT_EQ(lookup("b")->attributes.size, 11U);
    fs->release_directory(handle);
}

TEST_F(FileSystemTest, ALookupThatWasAnsweredBeforeARemovalDoesNotBringTheNameBack) {
    store.put_object("p/f", "text");
    ASSERT_TRUE(lookup("f"));
    clock.advance(Milliseconds(1001));
    store.hold(Operation::kList);
    auto found = std::async(std::launch::async, [&] { return lookup("f"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kList, 1));
    const Status removed = unlink("f");
    store.release(Operation::kList);
    ASSERT_TRUE(removed);
    EXPECT_EQ(errno_of(found.get()), ENOENT);
    EXPECT_TRUE(create("f", O_WRONLY | O_EXCL));
}

TEST_F(FileSystemTest, ADirectoryOfWhatIsBeingWrittenIsThere) {
    store.put_object("p/d/old", "text");
    const NodeId directory = lookup("d")->node;
    const HandleId handle = create("new", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "text"));
    const Status removed = answer<void>([&](auto reply) { store.remove("p/d/old", reply); });
    ASSERT_TRUE(removed);
    clock.advance(Milliseconds(1001));
    const Result<Entry> found = lookup("d");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->node, directory);
    EXPECT_EQ(errno_of(create("new", O_WRONLY | O_EXCL, directory)), EEXIST);
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/d/new"), "text");
}

// A rename that publishes "two" as f, and leaves "one" as f.tmp.
class ALeftover : public FileSystemTest {
protected:
    void leave() {
        save("f.tmp", "one");
        handle = open(lookup("f.tmp")->node, O_RDWR)->handle;
        ASSERT_TRUE(write(handle, 0, "two"));
        store.inject({Operation::kRemove, "p/f.tmp", store_error(EACCES, "AccessDenied", 403), 0, 100, false});
        EXPECT_FALSE(rename("f.tmp", "f"));
        store.clear_faults();
        ASSERT_EQ(store.content("p/f"), "two");
        ASSERT_EQ(store.content("p/f.tmp"), "one");
    }
    void close_and_wait() {
        static_cast<void>(close(handle));
        clock.advance(Milliseconds(1001));
    }
    HandleId handle = 0;
};

// It was removed by hand, and is made again with the same bytes.
TEST_F(ALeftover, IsCopiedWhereItOnlyLooksLikeOne) {
    store.make_etags_of_content();
    leave();
    close_and_wait();
    ASSERT_TRUE(lookup("f.tmp") && unlink("f.tmp"));
    save("f.tmp", "one");
    ASSERT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.content("p/f"), "one");
}

TEST_F(ALeftover, DoesNotReplaceWhatWasWrittenSince) {
    leave();
    ASSERT_TRUE(write(handle, 3, " and three"));
    ASSERT_TRUE(fsync(handle));
    ASSERT_TRUE(rename("f.tmp", "f"));
    close_and_wait();
    EXPECT_EQ(store.keys(), Names{"p/f"});
    EXPECT_EQ(store.content("p/f"), "two and three");
}

TEST_F(ALeftover, IsCopiedWhereTheNewNameIsFree) {
    leave();
    close_and_wait();
    ASSERT_TRUE(rename("f", "f.bak"));
    ASSERT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.content("p/f"), "one");
    EXPECT_EQ(store.content("p/f.bak"), "two");
    EXPECT_FALSE(store.exists("p/f.tmp"));
}

TEST_F(ALeftover, IsCopiedWhereTheNewNameWasRemoved) {
    leave();
    close_and_wait();
    ASSERT_TRUE(unlink("f"));
    ASSERT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.content("p/f"), "one");
    EXPECT_FALSE(store.exists("p/f.tmp"));
}

TEST_F(ALeftover, IsCopiedOverWhatAnotherMountHasWritten) {
    leave();
    close_and_wait();
    store.put_object("p/f", "of another");
    ASSERT_TRUE(rename("f.tmp", "f"));
    EXPECT_EQ(store.content("p/f"), "one");
    EXPECT_FALSE(store.exists("p/f.tmp"));
}

}  // namespace
}  // namespace ckptfs::fs
