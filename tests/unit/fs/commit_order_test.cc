// SPDX-License-Identifier: Apache-2.0
// What is under way to a key when the next change of that key comes.
#include <fcntl.h>

#include <future>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

using std::chrono::milliseconds;

// Of file_closes.cc.
constexpr milliseconds kFlushFollows{10};

class CommitOrderTest : public FileSystemTest {
protected:
    void TearDown() override {
        // Of a test that ended early.
        store.release(Operation::kCompleteUpload);
        store.release(Operation::kCopy);
        store.release(Operation::kPut);
        store.release(Operation::kUploadPart);
        store.release(Operation::kRemove);
        store.release(Operation::kRemoveMany);
        store.release(Operation::kHead);
    }

    // More than the first part, so that the commit is a CompleteMultipartUpload.
    void write_large(HandleId handle, char letter) {
        for (std::uint64_t block = 0; block < kLargeBlocks; ++block) {
            ASSERT_TRUE(write(handle, block << 20, std::string(std::size_t{1} << 20, letter)));
        }
    }
    // By name, as truncate(2) does.
    Result<Attributes> truncate(NodeId node, std::uint64_t size) {
        AttributeChange change;
        change.size = size;
        return answer<Attributes>([&](auto reply) { fs->setattr(node, std::nullopt, change, reply); });
    }
    // Its commit is under way, and the name is to be opened anew.
    void commit_large(const std::string& name) {
        const Result<CreatedFile> file = create(name);
        write_large(file->opened.handle, 'a');
        store.hold(Operation::kCompleteUpload);
        first = std::async(std::launch::async, [this, handle = file->opened.handle] { return flush(handle); });
        ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
        EXPECT_EQ(errno_of(open(file->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    }
    HandleId write_anew(const std::string& name, const std::string& text) {
        const HandleId handle = open(lookup(name)->node, O_WRONLY | O_TRUNC)->handle;
        EXPECT_TRUE(write(handle, 0, text));
        return handle;
    }

    static constexpr std::uint64_t kLargeBlocks = 24;
    std::future<Status> first;
};

TEST_F(CommitOrderTest, ACommitUnderWayDoesNotLandOverALaterOne) {
    commit_large("f");
    const HandleId second = write_anew("f", "second");
    auto closed = std::async(std::launch::async, [&] { return close(second); });
    EXPECT_EQ(closed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(closed.get());
    EXPECT_EQ(store.content("p/f"), "second");
    EXPECT_EQ(lookup("f")->attributes.size, 6U);
}

// A process that is killed in close(2) does not wait for the answer: its RELEASE comes while the commit is under way.
TEST_F(CommitOrderTest, AReleaseThatHasToWaitDoesNotPublishHalfOfWhatTheNextWrites) {
    const Result<CreatedFile> file = create("f");
    store.hold(Operation::kPut);
    first = std::async(std::launch::async, [&] { return flush(file->opened.handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    std::promise<void> released;
    fs->release(file->opened.handle, [&released](const Status& /*logged*/) { released.set_value(); });
    const HandleId second = open(file->entry.node, O_WRONLY | O_TRUNC)->handle;
    auto written = std::async(std::launch::async, [&] { return write(second, 0, "half"); });
    EXPECT_EQ(written.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_TRUE(written.get());
    released.get_future().wait();
    EXPECT_TRUE(first.get());
    EXPECT_EQ(store.content("p/f"), "");
    EXPECT_TRUE(write(second, 4, " and half"));
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "half and half");
}

TEST_F(CommitOrderTest, ACloseThatHasToWaitDoesNotPublishHalfOfWhatTheNextWrites) {
    commit_large("f");
    const NodeId node = lookup("f")->node;
    const HandleId truncating = open(node, O_WRONLY | O_TRUNC)->handle;
    auto truncated = std::async(std::launch::async, [&] { return close(truncating); });
    EXPECT_EQ(truncated.wait_for(kForAWhile), std::future_status::timeout);
    const HandleId second = open(node, O_WRONLY | O_TRUNC)->handle;
    EXPECT_TRUE(write(second, 0, "half"));
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(truncated.get());
    EXPECT_EQ(store.info("p/f").size, kLargeBlocks << 20);
    EXPECT_TRUE(write(second, 4, " and half"));
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "half and half");
}

// Of a child that had inherited the descriptor and wrote nothing.
TEST_F(CommitOrderTest, ADeathThatIsLookedIntoWhileACloseEndsGivesNothingUp) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "text"));
    store.hold(Operation::kPut);
    first = std::async(std::launch::async, [&] { return flush(handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    processes.killed = kProcess + 1;
    std::atomic<int> looks = 0;
    processes.while_looking = [&] {
        if (++looks == 2) {
            store.release(Operation::kPut);
            EXPECT_TRUE(first.get());
        }
    };
    std::promise<void> settled;
    const Caller child{kProcess + 1, 0, 0, false, {}, [&settled] { settled.set_value(); }};
    EXPECT_TRUE(answer<void>([&](auto reply) { fs->flush(handle, child, reply); }));
    ASSERT_TRUE(eventually([&] { return timer.waiting(kFlushFollows) == 1; }));
    timer.run(kFlushFollows);
    settled.get_future().wait();
    EXPECT_EQ(looks, 2);
    EXPECT_TRUE(write(handle, 4, " and more"));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "text and more");
}

TEST_F(CommitOrderTest, AGivenUpCommitIsWaitedForToo) {
    const Result<CreatedFile> file = create("f");
    write_large(file->opened.handle, 'a');
    store.hold(Operation::kCompleteUpload);
    first = std::async(std::launch::async, [&] { return fsync(file->opened.handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCompleteUpload, 1));
    processes.killed = kProcess;
    auto killed = std::async(std::launch::async, [&] { return flush(file->opened.handle); });
    EXPECT_FALSE(first.get());
    processes.killed = 0;
    EXPECT_EQ(errno_of(open(file->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId second = write_anew("f", "second");
    auto closed = std::async(std::launch::async, [&] { return close(second); });
    EXPECT_EQ(closed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCompleteUpload);
    static_cast<void>(killed.get());
    EXPECT_TRUE(closed.get());
    EXPECT_EQ(store.content("p/f"), "second");
}

TEST_F(CommitOrderTest, ARemovedNameDoesNotComeBackByAnEarlierCommit) {
    commit_large("f");
    auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(removed.get());
    EXPECT_TRUE(store.keys().empty());
}

TEST_F(CommitOrderTest, WhatIsFoundBeforeAnEarlierCommitIsRemovedIsGoneThen) {
    commit_large("f");
    auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.hold(Operation::kRemove);
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
    EXPECT_TRUE(lookup("f"));
    store.release(Operation::kRemove);
    EXPECT_TRUE(removed.get());
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
}

TEST_F(CommitOrderTest, AWriteThatWaitsAsItsFileIsRemovedLeadsNowhere) {
    const Result<CreatedFile> file = create("f");
    const HandleId handle = file->opened.handle;
    store.hold(Operation::kUploadPart);
    std::future<Status> written;
    std::uint64_t block = 0;
    do {
        written = std::async(std::launch::async, [this, handle, offset = block << 20] {
            return write(handle, offset, std::string(1 << 20, 'a'));
        });
        ++block;
    } while (written.wait_for(kForAWhile) == std::future_status::ready && written.get());
    AttributeChange change;
    change.size = 5;
    auto cut = std::async(std::launch::async, [&] {
        return answer<Attributes>([&](auto reply) { fs->setattr(file->entry.node, handle, change, reply); });
    });
    EXPECT_EQ(cut.wait_for(kForAWhile), std::future_status::timeout);
    auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
    EXPECT_TRUE(written.get());
    EXPECT_TRUE(cut.get());
    store.release(Operation::kUploadPart);
    EXPECT_TRUE(removed.get());
    EXPECT_TRUE(write(handle, 0, "more"));
    EXPECT_TRUE(close(handle));
    EXPECT_TRUE(store.keys().empty());
}

// A process that is killed in unlink(2) or rename(2) does not wait for the store's answer.
TEST_F(CommitOrderTest, WhoOpensWhatIsBeingRemovedToWriteWritesANewFile) {
    for (const int flags : {O_WRONLY | O_TRUNC, O_RDWR, O_WRONLY | O_APPEND}) {
        const NodeId node = save("f", "old");
        store.hold(Operation::kRemove);
        auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
        ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
        auto opened = std::async(std::launch::async, [&] { return open(node, flags); });
        auto created = std::async(std::launch::async, [&] { return create("f", flags); });
        EXPECT_EQ(opened.wait_for(kForAWhile), std::future_status::timeout);
        EXPECT_EQ(created.wait_for(kForAWhile), std::future_status::timeout);
        EXPECT_TRUE(open(node, O_RDONLY));
        store.release(Operation::kRemove);
        EXPECT_TRUE(removed.get());
        EXPECT_EQ(errno_of(opened.get()), ESTALE) << "so that the kernel looks once more";
        const Result<CreatedFile> file = created.get();
        ASSERT_TRUE(file);
        EXPECT_TRUE(write(file->opened.handle, 0, "new"));
        EXPECT_TRUE(close(file->opened.handle));
        EXPECT_EQ(store.content("p/f"), "new");
        EXPECT_TRUE(unlink("f"));
    }
}

TEST_F(CommitOrderTest, WhoOpensWhatCannotBeRemovedWritesIt) {
    const NodeId node = save("f", "old");
    store.hold(Operation::kRemove);
    store.inject(Fault{Operation::kRemove, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
    auto opened = std::async(std::launch::async, [&] { return open(node, O_WRONLY | O_TRUNC); });
    EXPECT_EQ(opened.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kRemove);
    EXPECT_FALSE(removed.get());
    const Result<OpenedFile> file = opened.get();
    ASSERT_TRUE(file);
    EXPECT_TRUE(write(file->handle, 0, "new"));
    EXPECT_TRUE(close(file->handle));
    EXPECT_EQ(store.content("p/f"), "new");
}

TEST_F(CommitOrderTest, WhoOpensWhatIsBeingRenamedOrReplacedToWriteWaits) {
    const NodeId source = save("f", "renamed");
    const NodeId target = save("g", "replaced");
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto first_opened = std::async(std::launch::async, [&] { return open(source, O_WRONLY | O_TRUNC); });
    auto second_opened = std::async(std::launch::async, [&] { return open(target, O_WRONLY | O_TRUNC); });
    EXPECT_EQ(first_opened.wait_for(kForAWhile), std::future_status::timeout);
    EXPECT_EQ(second_opened.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(errno_of(second_opened.get()), ESTALE);
    EXPECT_EQ(errno_of(first_opened.get()), ESTALE) << "its name is free";
    EXPECT_EQ(store.content("p/g"), "renamed");
}

TEST_F(CommitOrderTest, WhoWritesAMarkerAnewWhileItsRenameWaitsForOtherFilesDoesNotHaveHalfOfItPublished) {
    const NodeId marker = save("marker.tmp", "whole");
    const Result<CreatedFile> sibling = create("sibling");
    ASSERT_TRUE(write(sibling->opened.handle, 0, "sibling"));
    store.hold(Operation::kPut);
    auto renamed = std::async(std::launch::async, [&] { return rename("marker.tmp", ".metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    auto opened = std::async(std::launch::async, [&] { return open(marker, O_WRONLY | O_TRUNC); });
    EXPECT_EQ(opened.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(errno_of(opened.get()), ESTALE);
    EXPECT_EQ(store.content("p/.metadata"), "whole");
}

TEST_F(CommitOrderTest, ARenameWaitsForAnEarlierCommitOfEitherName) {
    commit_large("f");
    const HandleId second = write_anew("f", "second");
    auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
    EXPECT_EQ(renamed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
    EXPECT_EQ(store.content("p/g"), "second");
}

TEST_F(CommitOrderTest, ARenameOverANameWaitsForItsEarlierCommit) {
    save("other", "other");
    commit_large("f");
    auto renamed = std::async(std::launch::async, [&] { return rename("other", "f"); });
    EXPECT_EQ(renamed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCompleteUpload);
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(store.content("p/f"), "other");
}

TEST_F(CommitOrderTest, WhatIsSyncedWhileItsFileIsRenamedIsKept) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one"));
    ASSERT_TRUE(fsync(handle));
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    ASSERT_TRUE(write(handle, 3, "two"));
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    static_cast<void>(synced.wait_for(kForAWhile));
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(synced.get());
    EXPECT_EQ(store.content("p/g"), "onetwo");
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
    ASSERT_TRUE(write(handle, 6, "three"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/g"), "onetwothree");
}

TEST_F(CommitOrderTest, WhatIsSyncedWhileItsDirectoryIsRenamedIsKept) {
    const NodeId directory = mkdir("d")->node;
    const HandleId old = create("old", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(old, 0, "one"));
    ASSERT_TRUE(fsync(old));
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("d", "e"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    ASSERT_TRUE(write(old, 3, "two"));
    const HandleId fresh = create("fresh", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(fresh, 0, "fresh"));
    auto synced = std::async(std::launch::async, [&] { return fsync(old); });
    auto closed = std::async(std::launch::async, [&] { return close(fresh); });
    static_cast<void>(synced.wait_for(kForAWhile));
    static_cast<void>(closed.wait_for(kForAWhile));
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(synced.get());
    EXPECT_TRUE(closed.get());
    EXPECT_TRUE(close(old));
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/e/", "p/e/fresh", "p/e/old"}));
    EXPECT_EQ(store.content("p/e/old"), "onetwo");
}

// munmap(2) is no close: what was written by a mapping is saved by the RELEASE that follows.
TEST_F(CommitOrderTest, ATruncationByNameWhileTheLastReleaseIsSavedIsSavedToo) {
    const Result<CreatedFile> file = create("f", O_RDWR);
    ASSERT_TRUE(write(file->opened.handle, 0, "0123456789"));
    store.hold(Operation::kPut);
    auto released = std::async(std::launch::async, [&] { return release(file->opened.handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    auto cut = std::async(std::launch::async, [&] { return truncate(file->entry.node, 4); });
    EXPECT_EQ(cut.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_TRUE(released.get());
    EXPECT_TRUE(cut.get());
    EXPECT_EQ(store.content("p/f"), "0123");
    // The name is free of writers.
    EXPECT_EQ(fs->uploads().size(), 0U);
}

TEST_F(CommitOrderTest, ATruncationByNameWhileItsDirectoryIsRenamedGoesToTheNewName) {
    const NodeId directory = mkdir("d")->node;
    const HandleId saved = create("f", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(saved, 0, "0123456789"));
    ASSERT_TRUE(close(saved));
    const NodeId node = lookup("f", directory)->node;
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("d", "e"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto cut = std::async(std::launch::async, [&] { return truncate(node, 4); });
    static_cast<void>(cut.wait_for(kForAWhile));
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(cut.get());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/e/", "p/e/f"}));
    EXPECT_EQ(store.content("p/e/f"), "0123");
}

// A caller that is killed in rename(2) no longer holds the lock of the directory that keeps others away.
TEST_F(CommitOrderTest, ATruncationByNameWhileItIsRenamedGoesToTheNewName) {
    const NodeId node = save("f", "0123456789");
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("f", "g"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    auto cut = std::async(std::launch::async, [&] { return truncate(node, 4); });
    static_cast<void>(cut.wait_for(kForAWhile));
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(cut.get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
    EXPECT_EQ(store.content("p/g"), "0123");
}

TEST_F(CommitOrderTest, ATruncationByNameIsSharedWithWhoOpensTheFileMeanwhile) {
    const NodeId node = save("f", "0123456789");
    store.hold(Operation::kPut);
    auto cut = std::async(std::launch::async, [&] { return truncate(node, 4); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    const Result<OpenedFile> opened = open_beside(node, O_RDWR);
    ASSERT_TRUE(opened);
    store.release(Operation::kPut);
    EXPECT_TRUE(cut.get());
    EXPECT_EQ(read(opened->handle).value(), "0123");
    EXPECT_TRUE(write(opened->handle, 4, "abc"));
    EXPECT_TRUE(close(opened->handle));
    EXPECT_EQ(store.content("p/f"), "0123abc");
}

TEST_F(CommitOrderTest, WhoAsksForAFileAsItsDirectoryIsRenamedWritesUnderTheNewName) {
    store.make_etags_of_content();
    for (const int flags : {O_RDWR, O_WRONLY | O_APPEND}) {
        const NodeId directory = mkdir("d")->node;
        const HandleId saved = create("f", O_WRONLY, directory)->opened.handle;
        ASSERT_TRUE(write(saved, 0, "0123456789"));
        ASSERT_TRUE(close(saved));
        const NodeId node = lookup("f", directory)->node;
        store.hold(Operation::kCopy);
        store.hold(Operation::kRemoveMany);
        store.hold(Operation::kRemove);
        auto renamed = std::async(std::launch::async, [&] { return rename("d", "e"); });
        ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
        store.hold(Operation::kHead);
        auto opened = std::async(std::launch::async, [&] { return open(node, flags); });
        ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
        store.release(Operation::kCopy);
        ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
        store.release(Operation::kHead);
        const Result<OpenedFile> file = opened.get();
        store.release(Operation::kRemoveMany);
        store.release(Operation::kRemove);
        EXPECT_TRUE(renamed.get());
        ASSERT_TRUE(file) << file.error().message;
        EXPECT_TRUE(write(file->handle, 10, "abc"));
        EXPECT_TRUE(close(file->handle));
        EXPECT_EQ(store.content("p/e/f"), "0123456789abc");
        EXPECT_FALSE(store.exists("p/d/f"));
        EXPECT_TRUE(unlink("f", directory));
        EXPECT_TRUE(rmdir("e"));
    }
}

TEST_F(CommitOrderTest, AMarkerDoesNotFailForAFileThatIsRemovedMeanwhile) {
    save("marker.tmp", "whole");
    const Result<CreatedFile> sibling = create("sibling");
    ASSERT_TRUE(write(sibling->opened.handle, 0, "sibling"));
    store.hold(Operation::kPut);
    auto renamed = std::async(std::launch::async, [&] { return rename("marker.tmp", ".metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    auto removed = std::async(std::launch::async, [&] { return unlink("sibling"); });
    static_cast<void>(removed.wait_for(kForAWhile));
    store.release(Operation::kPut);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(removed.get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/.metadata"});
}

TEST_F(CommitOrderTest, ASyncThatWaitsWhileItsFileIsRemovedLeavesItReadable) {
    const NodeId node = save("f", "old");
    const HandleId handle = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(handle, 0, "new"));
    store.hold(Operation::kRemove);
    auto removed = std::async(std::launch::async, [&] { return unlink("f"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    EXPECT_EQ(synced.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kRemove);
    EXPECT_TRUE(removed.get());
    EXPECT_TRUE(synced.get());
    EXPECT_EQ(read(handle).value_or("error"), "new");
    EXPECT_TRUE(write(handle, 3, "er"));
    EXPECT_EQ(read(handle).value_or("error"), "newer");
    EXPECT_TRUE(close(handle));
    EXPECT_TRUE(store.keys().empty());
}

}  // namespace
}  // namespace ckptfs::fs
