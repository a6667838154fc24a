// SPDX-License-Identifier: Apache-2.0
// What the end of a mount waits for, and what it gives up.
#include <fcntl.h>

#include <future>

#include "file_system_fixture.h"
#include "fs/failures/failed_siblings.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(FileSystemTest, DrainWaitsForTheLastWriter) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    std::promise<void> drained;
    std::future<void> done = drained.get_future();
    fs->drain([&](const Status&) { drained.set_value(); });
    EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    EXPECT_EQ(fs->uploads().size(), 1U);
    EXPECT_EQ(errno_of(create("g")), ESHUTDOWN);
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(FileSystemTest, DrainWaitsForNoReleaseOnceDisconnectedButForClosesUnderWay) {
    const HandleId saved = create("saved")->opened.handle;
    const HandleId closing = create("closing")->opened.handle;
    const HandleId log = create("train.log")->opened.handle;
    const HandleId unsaved = create("unsaved")->opened.handle;
    for (const HandleId handle : {saved, closing, log, unsaved}) {
        ASSERT_TRUE(write(handle, 0, "content"));
    }
    ASSERT_TRUE(flush(saved));
    store.hold(Operation::kPut);
    std::promise<void> closed;
    fs->flush(closing, Caller{kProcess, 0, 0}, [&](const Status&) { closed.set_value(); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    std::promise<void> drained;
    std::future<void> done = drained.get_future();
    fs->drain([&](const Status&) { drained.set_value(); });
    fs->disconnected();
    EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    closed.get_future().wait();
    for (const char* key : {"p/saved", "p/closing", "p/train.log"}) {
        EXPECT_TRUE(store.exists(key) && store.content(key) == "content") << key;
    }
    EXPECT_FALSE(store.exists("p/unsaved"));
    EXPECT_EQ(fs->left_undone(), std::vector<std::string>{"saving p/unsaved: the mount ended before it was closed"});
}

TEST_F(FileSystemTest, WhatIsBeingWrittenIsStretchedWhileTheMountDrains) {
    const Result<CreatedFile> made = create("f");
    ASSERT_TRUE(write(made->opened.handle, 0, "content"));
    fs->drain([](const Status&) {});
    AttributeChange change;
    change.size = 100;
    EXPECT_TRUE(
        answer<Attributes>([&](auto reply) { fs->setattr(made->entry.node, made->opened.handle, change, reply); }));
    ASSERT_TRUE(close(made->opened.handle));
    EXPECT_EQ(store.content("p/f").size(), 100U);
}

// It was on its way when the mount began to end, which waits for it no more.
TEST_F(FileSystemTest, AnOpenThatTheStoreAnswersAfterTheDrainOpensNothingForWriting) {
    store.put_object("p/f", "content");
    const NodeId node = lookup("f")->node;
    store.hold(Operation::kHead);
    auto opened = std::async(std::launch::async, [&] { return open(node, O_WRONLY); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    EXPECT_TRUE(answer<void>([&](auto reply) { fs->drain(reply); }));
    store.release(Operation::kHead);
    EXPECT_EQ(errno_of(opened.get()), ESHUTDOWN);
}

TEST_F(FileSystemTest, DrainEndsTheUploadOfWhatIsNotReleasedOnceDisconnected) {
    const Result<CreatedFile> first = create("f");
    const HandleId earlier = first->opened.handle;
    for (std::uint64_t block = 0; block < 24; ++block) {
        ASSERT_TRUE(write(earlier, block << 20, std::string(std::size_t{1} << 20, 'x')));
    }
    ASSERT_TRUE(eventually([this] { return store.open_uploads() == 1; }));
    EXPECT_EQ(errno_of(open(first->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
    const HandleId later = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(later, 0, "content"));
    ASSERT_TRUE(close(later));
    const Result<void> drained = answer<void>([&](const Reply<void>& reply) {
        fs->drain(reply);
        fs->disconnected();
    });
    EXPECT_TRUE(drained);
    EXPECT_EQ(store.open_uploads(), 0);
    EXPECT_EQ(store.content("p/f"), "content");
    static_cast<void>(release(earlier));
}

TEST_F(FileSystemTest, DrainWaitsForTheEndOfAFailedFilesUpload) {
    store.hold(Operation::kAbortUpload);
    Fault fault;
    fault.operation = Operation::kUploadPart;
    fault.error = store_error(EIO, "InternalError", 500);
    store.inject(fault);
    const HandleId handle = create("f")->opened.handle;
    for (std::uint64_t block = 0; block < 24; ++block) {
        static_cast<void>(write(handle, block << 20, std::string(std::size_t{1} << 20, 'x')));
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kAbortUpload, 1));
    // The close does not wait for as long as the store takes.
    EXPECT_FALSE(answer<void>([&](auto reply) {
        fs->flush(handle, Caller{kProcess, 0, 0}, reply);
        timer.run(FailedSiblings::kLongestWait);
    }));
    EXPECT_TRUE(release(handle));
    std::promise<void> drained;
    std::future<void> done = drained.get_future();
    fs->drain([&](const Status&) { drained.set_value(); });
    EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    EXPECT_EQ(store.open_uploads(), 1);
    store.release(Operation::kAbortUpload);
    EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(store.open_uploads(), 0);
}

TEST_F(FileSystemTest, DrainWaitsForARename) {
    store.put_object("p/old", "content");
    store.hold(Operation::kCopy);
    auto renamed = std::async(std::launch::async, [&] { return rename("old", "new"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
    std::promise<void> drained;
    std::future<void> done = drained.get_future();
    fs->drain([&](const Status&) { drained.set_value(); });
    EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    EXPECT_EQ(fs->abandon([](const Status&) {}), std::vector<std::string>{"old (its rename was not finished)"});
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

// Its caller was killed.
TEST_F(FileSystemTest, DrainWaitsForARemoval) {
    store.put_object("p/f", "content");
    store.put_object("p/d/", "");
    ASSERT_TRUE(lookup("f") && lookup("d"));
    store.hold(Operation::kRemove);
    auto file = std::async(std::launch::async, [&] { return unlink("f"); });
    auto directory = std::async(std::launch::async, [&] { return rmdir("d"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 2));
    std::promise<void> drained;
    std::future<void> done = drained.get_future();
    fs->drain([&](const Status&) { drained.set_value(); });
    EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    EXPECT_EQ(fs->abandon([](const Status&) {}),
              (std::vector<std::string>{"d (its removal was not finished)", "f (its removal was not finished)"}));
    store.release(Operation::kRemove);
    EXPECT_TRUE(file.get());
    EXPECT_TRUE(directory.get());
    EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(store.keys().empty());
}

TEST_F(FileSystemTest, WhatIsAbandonedIsNamed) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "content"));
    EXPECT_EQ(fs->abandon([](const Status&) {}), std::vector<std::string>{"p/f"});
    EXPECT_FALSE(flush(handle));
    static_cast<void>(release(handle));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/.ckptfs/failed/f"});
}

TEST_F(FileSystemTest, WhatIsAbandonedLeavesNoUploadThoughAPartHangs) {
    store.hold(Operation::kUploadPart);
    const HandleId handle = create("f")->opened.handle;
    for (std::uint64_t block = 0; block < 24; ++block) {
        ASSERT_TRUE(write(handle, block << 20, std::string(std::size_t{1} << 20, 'x')));
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 1));
    auto ended = std::make_shared<std::promise<void>>();
    std::future<void> all = ended->get_future();
    EXPECT_EQ(fs->abandon([ended](const Status& status) {
        EXPECT_TRUE(status);
        ended->set_value();
    }),
              std::vector<std::string>{"p/f"});
    EXPECT_TRUE(eventually([this] { return store.open_uploads() == 0; }));
    EXPECT_EQ(all.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "a part is in flight";
    store.release(Operation::kUploadPart);
    EXPECT_EQ(all.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(store.open_uploads(), 0);
    static_cast<void>(release(handle));
}

TEST_F(FileSystemTest, WhatIsAbandonedEndsWithItsUpload) {
    store.hold(Operation::kUploadPart);
    const HandleId handle = create("f")->opened.handle;
    for (std::uint64_t block = 0; block < 24; ++block) {
        ASSERT_TRUE(write(handle, block << 20, std::string(std::size_t{1} << 20, 'x')));
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 1));
    store.release(Operation::kUploadPart);
    store.hold(Operation::kAbortUpload);
    const Result<void> ended = answer<void>([&](const Reply<void>& reply) {
        static_cast<void>(fs->abandon(reply));
        EXPECT_EQ(store.open_uploads(), 1);
        store.release(Operation::kAbortUpload);
    });
    EXPECT_TRUE(ended);
    EXPECT_EQ(store.open_uploads(), 0);
    static_cast<void>(release(handle));
}

}  // namespace
}  // namespace ckptfs::fs
