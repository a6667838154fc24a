// SPDX-License-Identifier: Apache-2.0
#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class LiveLogsTest : public FileSystemTest {
protected:
    void interval() { timer.run(WriteConfig().publish_interval); }
    // Files are encoded on another thread.
    [[nodiscard]] bool published(const std::string& key, const std::string& content) const {
        return eventually([&] { return published_now(key, content); });
    }
    [[nodiscard]] bool published_now(const std::string& key, const std::string& content) const {
        return store.exists(key) && store.content(key) == content;
    }
    [[nodiscard]] std::size_t waiting() const { return timer.waiting(WriteConfig().publish_interval); }
};

TEST_F(LiveLogsTest, WhatIsAppendedAppearsAfterTheInterval) {
    const HandleId handle = create("notes", O_WRONLY | O_APPEND)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one\n"));
    EXPECT_FALSE(store.exists("p/notes"));
    interval();
    EXPECT_TRUE(published("p/notes", "one\n"));
    ASSERT_TRUE(write(handle, 0, "two\n"));
    // While the first commit is being ended, which is after the store has it, an interval starts no second one.
    EXPECT_TRUE(eventually([&] {
        interval();
        return published_now("p/notes", "one\ntwo\n");
    }));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/notes"), "one\ntwo\n");
}

TEST_F(LiveLogsTest, ALogByItsNameNeedNotBeOpenedForAppending) {
    const HandleId handle = create("events.out.tfevents.1.host", O_WRONLY)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "event"));
    interval();
    EXPECT_TRUE(published("p/events.out.tfevents.1.host", "event"));
    ASSERT_TRUE(close(handle));
}

TEST_F(LiveLogsTest, WithoutAnythingNewThereIsNoCommit) {
    const HandleId handle = create("notes", O_WRONLY | O_APPEND)->opened.handle;
    interval();
    EXPECT_EQ(store.calls(Operation::kPut), 0) << "nothing was written";
    ASSERT_TRUE(write(handle, 0, "one\n"));
    interval();
    EXPECT_TRUE(published("p/notes", "one\n"));
    interval();
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.calls(Operation::kPut), 1);
}

TEST_F(LiveLogsTest, OtherFilesAreLeftAlone) {
    const HandleId handle = create("shard", O_WRONLY)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    EXPECT_EQ(waiting(), 0U);
    interval();
    EXPECT_FALSE(store.exists("p/shard"));
    ASSERT_TRUE(close(handle));
}

TEST_F(LiveLogsTest, NoTimeIsKeptWhileNoLogIsOpen) {
    const HandleId first = create("a.log")->opened.handle;
    const HandleId second = create("b.log")->opened.handle;
    EXPECT_EQ(waiting(), 1U);
    interval();
    EXPECT_EQ(waiting(), 1U);
    ASSERT_TRUE(close(first));
    ASSERT_TRUE(close(second));
    interval();
    EXPECT_EQ(waiting(), 0U);
}

TEST_F(LiveLogsTest, ASlowCommitIsNotDoubled) {
    const HandleId handle = create("a.log")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one"));
    store.hold(Operation::kPut);
    interval();
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    interval();
    store.release(Operation::kPut);
    EXPECT_EQ(store.calls(Operation::kPut), 1);
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/a.log"), "one");
}

TEST_F(LiveLogsTest, WhatIsWrittenOtherwiseWhileItsPublishWaitsIsNotPublished) {
    const HandleId handle = create("notes", O_WRONLY | O_APPEND)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one\n"));
    store.hold(Operation::kPut);
    auto synced = std::async(std::launch::async, [&] { return fsync(handle); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    ASSERT_TRUE(write(handle, 0, "two\n"));
    interval();
    // By a process that has cleared O_APPEND meanwhile.
    ASSERT_TRUE(write(handle, 8, "half", false, true));
    store.release(Operation::kPut);
    ASSERT_TRUE(synced.get());
    // In its turn: behind the publish.
    ASSERT_TRUE(unlink("notes"));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.calls(Operation::kPut), 1) << "by fsync";
}

TEST_F(LiveLogsTest, WhatIsWrittenOtherwiseAfterALostAnswerIsNotPublishedByAReader) {
    const HandleId handle = create("notes", O_WRONLY | O_APPEND)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "one\n"));
    ASSERT_TRUE(fsync(handle));
    store.inject({Operation::kPut, "p/notes", store_error(EIO, "", 0), 0, 1, true});
    ASSERT_TRUE(write(handle, 0, "two\n"));
    interval();
    ASSERT_TRUE(published("p/notes", "one\ntwo\n"));
    ASSERT_TRUE(write(handle, 0, "half", false, true));
    const Result<OpenedFile> reader = open(lookup("notes")->node, O_RDONLY);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(*read(reader->handle), "one\ntwo\n") << "of the version that is there";
    EXPECT_EQ(store.calls(Operation::kPut), 2);
    ASSERT_TRUE(release(reader->handle));
    ASSERT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/notes"), "halftwo\n");
}

}  // namespace
}  // namespace ckptfs::fs
