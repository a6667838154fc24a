// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fs.h>

#include <future>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(FileSystemTest, AFileIsVisibleInItsMountOnlyUntilItIsClosed) {
    const Result<CreatedFile> file = create("f");
    ASSERT_TRUE(file);
    ASSERT_TRUE(write(file->opened.handle, 0, "content"));
    EXPECT_FALSE(store.exists("p/f"));
    EXPECT_EQ(lookup("f")->attributes.size, 7U);
    EXPECT_EQ(list(), (std::vector<std::string>{".", "..", "f"}));
    ASSERT_TRUE(close(file->opened.handle));
    EXPECT_EQ(store.content("p/f"), "content");
}

TEST_F(FileSystemTest, AnEmptyFileIsPublishedAtClose) {
    ASSERT_TRUE(close(create("empty")->opened.handle));
    EXPECT_TRUE(store.exists("p/empty"));
    EXPECT_EQ(store.content("p/empty"), "");
}

TEST_F(FileSystemTest, AnEmptyFileIsOpenedByItsVersion) {
    store.put_object("p/empty", "");
    const NodeId node = lookup("empty")->node;
    const int requests = store.calls(Operation::kGet);
    const Result<OpenedFile> opened = open(node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(read(opened->handle).value(), "");
    EXPECT_EQ(store.calls(Operation::kGet), requests);
}

TEST_F(FileSystemTest, AnEmptyFileThatAnotherClientFilledIsAnotherVersion) {
    store.put_object("p/marker", "");
    const NodeId node = lookup("marker")->node;
    store.put_object("p/marker", "ready");
    EXPECT_EQ(errno_of(open(node, O_RDONLY)), ESTALE);
    const Result<OpenedFile> opened = open(lookup("marker")->node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(read(opened->handle).value(), "ready");
}

TEST_F(FileSystemTest, ACloseWithDescriptorsLeftPublishesNothing) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one"));
    processes.descriptors[kProcess] = 1;
    ASSERT_TRUE(flush(handle));
    EXPECT_FALSE(store.exists("p/f"));
    ASSERT_TRUE(write(handle, 3, "two"));
    processes.descriptors[kProcess] = 0;
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "onetwo");
    EXPECT_EQ(store.calls(Operation::kPut), 1);
}

TEST_F(FileSystemTest, WhatNoCloseCommittedReleaseDoes) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    processes.descriptors[kProcess] = 1;
    ASSERT_TRUE(flush(handle));
    ASSERT_TRUE(release(handle));
    EXPECT_EQ(store.content("p/f"), "content");
}

TEST_F(FileSystemTest, AKilledWriterLeavesTheEarlierVersion) {
    store.put_object("p/f", "old");
    const HandleId handle = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    processes.killed = kProcess;
    static_cast<void>(close(handle));
    EXPECT_EQ(store.content("p/f"), "old");
    EXPECT_EQ(lookup("f")->attributes.size, 3U);
}

TEST_F(FileSystemTest, WhatAKilledWriterLeftToOthersIsNotPublishedByTheLastRelease) {
    store.put_object("p/f", "old");
    const HandleId handle = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    processes.killed = kProcess;
    processes.others_write = true;
    ASSERT_TRUE(flush(handle));
    // The survivor only held the descriptor, and ends.
    ASSERT_TRUE(release(handle));
    EXPECT_EQ(store.content("p/f"), "old");
}

TEST_F(FileSystemTest, WhatASurvivorOfAKilledWriterWritesOnIsPublished) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "first"));
    processes.killed = kProcess;
    processes.others_write = true;
    ASSERT_TRUE(flush(handle));
    ASSERT_TRUE(write(handle, 5, "second"));
    ASSERT_TRUE(release(handle));
    EXPECT_EQ(store.content("p/f"), "firstsecond");
}

TEST_F(FileSystemTest, WhatAKilledWriterLeftIsNotPublishedByTheCloseOfAnother) {
    store.put_object("p/f", "old");
    const NodeId node = lookup("f")->node;
    const HandleId bystander = open(node, O_RDWR)->handle;
    const HandleId writer = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, 0, "half"));
    processes.killed = kProcess;
    processes.others_write = true;
    ASSERT_TRUE(flush(writer));
    ASSERT_TRUE(release(writer));
    processes.others_write = false;
    EXPECT_EQ(errno_of(fsync(bystander)), EIO);
    EXPECT_EQ(errno_of(flush(bystander, kProcess + 1)), EIO) << "the first failure is kept";
    ASSERT_TRUE(release(bystander));
    EXPECT_EQ(store.content("p/f"), "old");
}

TEST_F(FileSystemTest, AnOpenerThatWroteNothingLeavesTheFileToItsChild) {
    const HandleId handle = create("f")->opened.handle;
    processes.handed_to_a_child = true;
    ASSERT_TRUE(flush(handle));
    EXPECT_FALSE(store.exists("p/f"));
    processes.handed_to_a_child = false;
    ASSERT_TRUE(flush(handle));
    EXPECT_TRUE(store.exists("p/f"));
    ASSERT_TRUE(release(handle));
}

TEST_F(FileSystemTest, AReaderThatSyncsSavesWhatIsWritten) {
    store.put_object("p/f", "old");
    const HandleId reader = open(lookup("f")->node, O_RDONLY)->handle;
    ASSERT_EQ(errno_of(open(lookup("f")->node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId writer = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(writer, 0, "new"));
    ASSERT_TRUE(fsync(reader));
    EXPECT_EQ(store.content("p/f"), "new");
    ASSERT_TRUE(close(writer));
}

TEST_F(FileSystemTest, AKilledWriterOfANewFileLeavesNoName) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    processes.killed = kProcess;
    static_cast<void>(close(handle));
    // The first lookup may be that of an unlink.
    EXPECT_EQ(errno_of(getattr(lookup("f")->node)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/.ckptfs/failed/f"});
    EXPECT_EQ(kernel_cache.entries, std::vector<std::string>{"f"});
}

TEST_F(FileSystemTest, AFailureIsKeptAndNothingIsPublished) {
    store.inject({Operation::kPut, "p/f", store_error(EACCES, "AccessDenied", 403), 0, 100, false});
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    EXPECT_EQ(errno_of(fsync(handle)), EIO);
    EXPECT_EQ(errno_of(write(handle, 7, "more")), EIO);
    EXPECT_EQ(errno_of(rename("f", "g")), EIO);
    EXPECT_EQ(errno_of(flush(handle)), EIO);
    ASSERT_TRUE(release(handle));
    EXPECT_EQ(errno_of(getattr(lookup("f")->node)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
}

TEST_F(FileSystemTest, FsyncPublishesAndWritingGoesOn) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(fsync(handle));
    EXPECT_FALSE(store.exists("p/f")) << "nothing was written yet";
    ASSERT_TRUE(write(handle, 0, "one"));
    ASSERT_TRUE(fsync(handle));
    EXPECT_EQ(store.content("p/f"), "one");
    ASSERT_TRUE(write(handle, 3, "two"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "onetwo");
}

TEST_F(FileSystemTest, AppendStartsFromTheCommittedObject) {
    store.put_object("p/log", "first line\n");
    const HandleId handle = open(lookup("log")->node, O_WRONLY | O_APPEND)->handle;
    ASSERT_TRUE(write(handle, 0, "second line\n"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/log"), "first line\nsecond line\n");
}

TEST_F(FileSystemTest, ReadsWhatTheBucketHolds) {
    store.put_object("p/f", "content");
    const Result<OpenedFile> opened = open(lookup("f")->node, O_RDONLY);
    ASSERT_TRUE(opened);
    EXPECT_EQ(*read(opened->handle), "content");
    EXPECT_EQ(*read(opened->handle, 3, 2), "te");
    EXPECT_EQ(*read(opened->handle, 7), "");
}

TEST_F(FileSystemTest, PagesAreKeptWhileTheVersionIsTheSame) {
    store.put_object("p/f", "content");
    const NodeId node = lookup("f")->node;
    const Result<OpenedFile> first = open(node, O_RDONLY);
    EXPECT_FALSE(first->keep_cache);
    EXPECT_EQ(*read(first->handle), "content");
    EXPECT_TRUE(open(node, O_RDONLY)->keep_cache);
}

TEST_F(FileSystemTest, OpenFindsAnotherVersionAndGivesTheNameANewNodeOnce) {
    store.put_object("p/f", "old");
    const Result<Entry> entry = lookup("f");
    const HandleId reader = open(entry->node, O_RDONLY)->handle;
    store.put_object("p/f", "newer");
    EXPECT_EQ(errno_of(open(entry->node, O_RDONLY)), ESTALE);
    const Result<Entry> again = lookup("f");
    EXPECT_NE(again->node, entry->node);
    EXPECT_EQ(again->attributes.inode, entry->attributes.inode);
    EXPECT_EQ(again->attributes.size, 5U);
    EXPECT_EQ(*read(open(again->node, O_RDONLY)->handle), "newer");
    EXPECT_EQ(*read(reader), "old");
    EXPECT_EQ(getattr(entry->node)->size, 3U);
}

TEST_F(FileSystemTest, TruncatingWhatOthersReadGivesTheNameANewNode) {
    store.put_object("p/f", "old");
    const NodeId node = lookup("f")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(errno_of(open(node, O_WRONLY | O_TRUNC)), ESTALE);
    const NodeId fresh = lookup("f")->node;
    ASSERT_NE(fresh, node);
    const Result<OpenedFile> writer = open(fresh, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(write(writer->handle, 0, "newer"));
    EXPECT_EQ(*read(reader), "old");
    ASSERT_TRUE(close(writer->handle));
    EXPECT_EQ(*read(open(lookup("f")->node, O_RDONLY)->handle), "newer");
}

TEST_F(FileSystemTest, OfTwoWritersOfOneNameWhatTheLaterCutAwayIsNotPublished) {
    const Result<CreatedFile> first = create("f");
    ASSERT_TRUE(write(first->opened.handle, 0, "first"));
    EXPECT_EQ(errno_of(open(first->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId second = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(second, 0, "second!"));
    ASSERT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "second!");
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/f"), "second!");
    EXPECT_EQ(lookup("f")->attributes.size, 7U);
}

TEST_F(FileSystemTest, WhoAppendsGoesOnBehindTheVersionThatReplacedItsOwn) {
    const Result<CreatedFile> first = create("f", O_WRONLY | O_CREAT | O_APPEND);
    ASSERT_TRUE(write(first->opened.handle, 0, "first"));
    EXPECT_EQ(errno_of(open(first->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId second = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(second, 0, "second!"));
    ASSERT_TRUE(close(second));
    ASSERT_TRUE(write(first->opened.handle, 5, " and more"));
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/f"), "second! and more");
}

TEST_F(FileSystemTest, WhatIsNotInTheBucketYetIsTruncatedWhereNamesAreNotBelieved) {
    NameConfig names;
    names.metadata_ttl = Milliseconds(0);
    fs = FileSystem::create(FileSystemEnvironment{store, *blocking, clock, timer, processes, kernel_cache, *codec,
                                                  write_environment, read_environment, names, "p/", "here"});
    const Result<CreatedFile> first = create("f", O_RDWR);
    ASSERT_TRUE(write(first->opened.handle, 0, "first"));
    EXPECT_EQ(errno_of(open(first->entry.node, O_RDWR | O_TRUNC)), ESTALE);
    const Result<Entry> again = lookup("f");
    ASSERT_TRUE(again);
    const HandleId second = open(again->node, O_RDWR | O_TRUNC)->handle;
    ASSERT_TRUE(write(second, 0, "second"));
    EXPECT_TRUE(close(first->opened.handle));
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "second");
}

TEST_F(FileSystemTest, WhatWasOpenedBeforeTheSameProcessWroteTheNameAnewTakesNoMore) {
    const Result<CreatedFile> first = create("f");
    ASSERT_TRUE(write(first->opened.handle, 0, "first"));
    EXPECT_EQ(errno_of(open(first->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId second = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(second, 0, "second!"));
    ASSERT_TRUE(close(second));
    EXPECT_EQ(errno_of(write(first->opened.handle, 5, " and more")), ESTALE);
    EXPECT_EQ(errno_of(close(first->opened.handle)), ESTALE);
    EXPECT_EQ(store.content("p/f"), "second!");
}

// It was in the middle of a file that then is another, shorter one.
TEST_F(FileSystemTest, WhoHasReadChangesThatAreGivenUpIsToldSo) {
    store.put_object("p/f", "short");
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_RDWR)->handle;
    const HandleId early = open(node, O_RDONLY)->handle;
    const HandleId reader = open(node, O_RDONLY)->handle;
    ASSERT_TRUE(write(writer, 5, " and long"));
    EXPECT_EQ(*read(reader, 0, 9), "short and");
    processes.killed = kProcess;
    static_cast<void>(flush(writer));
    processes.killed = 0;
    EXPECT_EQ(errno_of(read(reader, 9, 100)), EIO);
    EXPECT_EQ(*read(early), "short");
    ASSERT_TRUE(close(early));
    ASSERT_TRUE(close(reader));
}

TEST_F(FileSystemTest, WhatAKilledWriterLeftToOthersIsNotShown) {
    store.put_object("p/f", "short");
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_RDWR)->handle;
    const HandleId other = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, 5, " and long"));
    processes.killed = kProcess;
    processes.others_write = true;
    static_cast<void>(flush(writer));
    processes.killed = 0;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "short");
    static_cast<void>(close(other));
    EXPECT_EQ(*read(reader), "short");
    static_cast<void>(release(writer));
    ASSERT_TRUE(close(reader));
    EXPECT_EQ(store.content("p/f"), "short");
}

TEST_F(FileSystemTest, AReaderFollowsAnAppendOfItsOwnMount) {
    store.put_object("p/log", "one ");
    const NodeId node = lookup("log")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one ");
    EXPECT_EQ(errno_of(open(node, O_WRONLY | O_APPEND)), ESTALE);
    const HandleId writer = open(lookup("log")->node, O_WRONLY | O_APPEND)->handle;
    ASSERT_TRUE(write(writer, 4, "two"));
    EXPECT_EQ(*read(reader), "one ");
    EXPECT_EQ(getattr(node)->size, 4U);
    ASSERT_TRUE(close(writer));
    EXPECT_EQ(*read(reader), "one two");
    EXPECT_EQ(getattr(node)->size, 7U);
    EXPECT_EQ(kernel_cache.inodes, std::vector<NodeId>{node});
}

TEST_F(FileSystemTest, AReaderOfWhatHasGrownAndWasRemovedDoesNotFindItEmpty) {
    store.put_object("p/log", "one ");
    const NodeId node = lookup("log")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(errno_of(open(node, O_WRONLY | O_APPEND)), ESTALE);
    const HandleId writer = open(lookup("log")->node, O_WRONLY | O_APPEND)->handle;
    ASSERT_TRUE(write(writer, 4, "two"));
    ASSERT_TRUE(close(writer));
    ASSERT_TRUE(unlink("log"));
    EXPECT_EQ(errno_of(read(reader)), ESTALE);
}

// The kernel looks up once more only. By then yet another version may be there, and another one when that is opened.
class SecondTry : public FileSystemTest {
protected:
    void open_fails_once_and_a_third_version_comes() {
        store.put_object("p/f", "one");
        const NodeId first = lookup("f")->node;
        store.put_object("p/f", "second");
        EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
        store.put_object("p/f", "third one");
        clock.advance(Milliseconds(1001));
    }
};

TEST_F(SecondTry, OpensANameThatIsReplacedAllTheTime) {
    open_fails_once_and_a_third_version_comes();
    const Result<Entry> again = lookup("f");
    EXPECT_EQ(again->attributes.size, 9U);
    store.put_object("p/f", "and the fourth");
    const Result<OpenedFile> opened = open(again->node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE(opened->direct_io) << "the kernel may know another size";
    EXPECT_EQ(*read(opened->handle), "and the fourth");
    EXPECT_EQ(getattr(again->node)->size, 14U);
    EXPECT_EQ(lookup("f")->node, again->node);
    EXPECT_FALSE(open(again->node, O_RDONLY)->keep_cache);
}

TEST_F(SecondTry, OpensAVersionThatLosesItsNameToALookup) {
    open_fails_once_and_a_third_version_comes();
    const NodeId third = lookup("f")->node;
    store.put_object("p/f", "and the fourth");
    clock.advance(Milliseconds(1001));
    EXPECT_NE(lookup("f")->node, third);
    const Result<OpenedFile> opened = open(third, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(*read(opened->handle), "and the fourth");
}

TEST_F(SecondTry, OpensANameThatHadNoNodeWhenTheFirstFailed) {
    store.put_object("p/f", "one");
    const NodeId first = lookup("f")->node;
    store.put_object("p/f", "second");
    clock.advance(Milliseconds(1001));
    fs->forget(lookup("f")->node, 1);
    EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
    const NodeId found = lookup("f")->node;
    store.put_object("p/f", "third one");
    const Result<OpenedFile> opened = open(found, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(*read(opened->handle), "third one");
}

TEST_F(SecondTry, LeavesAVersionThatIsOpenToItsReader) {
    open_fails_once_and_a_third_version_comes();
    const NodeId third = lookup("f")->node;
    const HandleId reader = answer<OpenedFile>([&](auto reply) {
                                fs->open(third, O_RDONLY, Caller{kProcess + 1, 0, 0}, reply);
                            })->handle;
    store.put_object("p/f", "and the fourth");
    EXPECT_EQ(*read(open(third, O_RDONLY)->handle), "third one");
    EXPECT_EQ(*read(reader), "third one");
}

TEST_F(FileSystemTest, AFileThatWentAwayIsLookedUpAgainAtOpen) {
    store.put_object("p/f", "content");
    const NodeId node = lookup("f")->node;
    answer<void>([&](auto reply) { store.remove("p/f", reply); });
    EXPECT_EQ(errno_of(open(node, O_RDONLY)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
}

TEST_F(FileSystemTest, AFileRemovedWhileItsCommitIsUnderWayStaysRemoved) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    store.hold(Operation::kPut);
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    store.hold(Operation::kHead);
    auto unlinked = std::async(std::launch::async, [&] { return unlink("f"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    store.release(Operation::kHead);
    // As of one that was removed before.
    EXPECT_TRUE(synced.get());
    store.release(Operation::kPut);
    EXPECT_TRUE(unlinked.get());
    EXPECT_FALSE(store.exists("p/f"));
}

TEST_F(FileSystemTest, AnUnlinkedOpenFileIsWrittenToNowhere) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    ASSERT_TRUE(unlink("f"));
    EXPECT_TRUE(write(handle, 7, "more"));
    EXPECT_TRUE(close(handle));
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(store.open_uploads(), 0);
}

TEST_F(FileSystemTest, WhatAnUnlinkedFileDroppedIsNotReadBackAsItWasBefore) {
    store.put_object("p/f", "before");
    const HandleId appending = open(lookup("f")->node, O_WRONLY | O_APPEND)->handle;
    const HandleId changing = open_beside(lookup("f")->node, O_RDWR)->handle;
    EXPECT_EQ(*read(changing), "before");
    ASSERT_TRUE(unlink("f"));
    EXPECT_TRUE(write(changing, 0, "beside"));
    EXPECT_EQ(errno_of(read(changing)), EOPNOTSUPP);
    EXPECT_TRUE(close(changing));
    EXPECT_TRUE(close(appending));
}

TEST_F(FileSystemTest, WhatHasAnotherSizeIsNotReadBackAsItWasBefore) {
    const HandleId writing = create("f")->opened.handle;
    ASSERT_TRUE(write(writing, 0, "content"));
    const HandleId changing = open_beside(lookup("f")->node, O_RDWR)->handle;
    ASSERT_TRUE(fsync(writing));
    EXPECT_EQ(*read(changing), "content");
    AttributeChange change;
    change.size = 9;
    ASSERT_TRUE(answer<Attributes>([&](auto reply) { fs->setattr(lookup("f")->node, changing, change, reply); }));
    EXPECT_EQ(errno_of(read(changing)), EOPNOTSUPP);
    EXPECT_TRUE(close(changing));
    EXPECT_TRUE(close(writing));
}

TEST_F(FileSystemTest, AnUnlinkedOpenFileThatMayBeReadGoesOn) {
    const HandleId handle = create("f", O_RDWR)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    ASSERT_TRUE(unlink("f"));
    ASSERT_TRUE(write(handle, 7, " and more"));
    EXPECT_EQ(*read(handle), "content and more");
    EXPECT_TRUE(fsync(handle));
    ASSERT_TRUE(write(handle, 0, "CONTENT"));
    EXPECT_EQ(*read(handle), "CONTENT and more");
    EXPECT_TRUE(close(handle));
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(store.open_uploads(), 0);
}

}  // namespace
}  // namespace ckptfs::fs
