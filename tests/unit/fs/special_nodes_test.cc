// SPDX-License-Identifier: Apache-2.0
#include "fs/names/special_nodes.h"

#include <linux/fs.h>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class SpecialNodesTest : public FileSystemTest {
protected:
    Result<Entry> make(const std::string& name, FileType type = FileType::kSocket, NodeId parent = kRootNode) {
        return answer<Entry>([&](auto reply) {
            fs->make_special(parent, name, type, 0640, Caller{kProcess, 7, 8}, reply);
        });
    }
};

TEST_F(SpecialNodesTest, OutliveTheKernelsMemoryOfThem) {
    const Result<Entry> made = make("socket");
    ASSERT_TRUE(made);
    EXPECT_EQ(made->attributes.uid, 7U);
    EXPECT_EQ(made->attributes.mode, mode_t{0640});
    fs->forget(made->node, 1);
    clock.advance(std::chrono::hours(1));
    const Result<Entry> again = lookup("socket");
    ASSERT_TRUE(again);
    EXPECT_EQ(again->node, made->node);
    EXPECT_EQ(again->attributes.type, FileType::kSocket);
    EXPECT_TRUE(unlink("socket"));
    EXPECT_EQ(errno_of(lookup("socket")), ENOENT);
    EXPECT_TRUE(store.keys().empty());
}

TEST_F(SpecialNodesTest, NothingTakesTheirNames) {
    ASSERT_TRUE(make("fifo", FileType::kFifo));
    EXPECT_EQ(errno_of(make("fifo")), EEXIST);
    EXPECT_EQ(errno_of(mkdir("fifo")), EEXIST);
    EXPECT_EQ(errno_of(create("fifo", O_WRONLY | O_EXCL)), EEXIST);
    // The kernel is to look again.
    EXPECT_EQ(errno_of(create("fifo")), ESTALE);
    const NodeId temporary = save("x.partial", "x");
    EXPECT_EQ(errno_of(answer<Entry>([&](auto reply) { fs->link(temporary, kRootNode, "fifo", {kProcess}, reply); })),
              EEXIST);
    EXPECT_EQ(errno_of(answer<Entry>([&](auto reply) { fs->symlink(kRootNode, "fifo", "target", {}, reply); })),
              EEXIST);
    save("file", "x");
    EXPECT_EQ(errno_of(make("file")), EEXIST);
    EXPECT_EQ(errno_of(rename("fifo", "file", RENAME_NOREPLACE)), EEXIST);
    EXPECT_EQ(errno_of(rename("fifo", "file", RENAME_EXCHANGE)), EINVAL);
    EXPECT_EQ(errno_of(make("name\xff")), EILSEQ);
}

TEST_F(SpecialNodesTest, ThatReplaceAFileBeingWrittenEndIt) {
    ASSERT_TRUE(make("socket"));
    const Result<CreatedFile> file = create("file");
    ASSERT_TRUE(write(file->opened.handle, 0, "half"));
    EXPECT_TRUE(rename("socket", "file"));
    EXPECT_TRUE(close(file->opened.handle));
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(lookup("file")->attributes.type, FileType::kSocket);
}

TEST_F(SpecialNodesTest, StayWhereTheFileThatTheyWereToReplaceCannotBeRemoved) {
    ASSERT_TRUE(make("socket"));
    save("file", "x");
    store.inject({Operation::kRemove, "p/file", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(errno_of(rename("socket", "file")), EACCES);
    EXPECT_EQ(lookup("socket")->attributes.type, FileType::kSocket);
    EXPECT_EQ(lookup("file")->attributes.type, FileType::kFile);
}

TEST_F(SpecialNodesTest, ThereIsABound) {
    for (std::size_t n = 0; n < SpecialNodes::kMost; ++n) {
        ASSERT_TRUE(make(std::to_string(n)));
    }
    EXPECT_EQ(errno_of(make("one more")), ENOSPC);
    EXPECT_TRUE(rename("0", "1"));
    EXPECT_TRUE(make("one more"));
    EXPECT_EQ(errno_of(make("another")), ENOSPC);
}

TEST_F(SpecialNodesTest, WhatIsRemovedWhileItIsListedIsNotMadeUp) {
    ASSERT_TRUE(make("a"));
    ASSERT_TRUE(make("b"));
    const Result<CreatedFile> file = create("c");
    const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
    const auto read = [&](std::uint64_t offset) {
        return *answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, offset, 1, true, reply); });
    };
    // After "." and "..".
    const std::vector<DirectoryEntry> first = read(2);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first.front().name, "a");
    EXPECT_TRUE(unlink("b"));
    EXPECT_TRUE(unlink("c"));
    EXPECT_TRUE(read(first.front().next_offset).empty());
    EXPECT_EQ(errno_of(lookup("b")), ENOENT);
    EXPECT_EQ(errno_of(lookup("c")), ENOENT);
    fs->release_directory(handle);
}

}  // namespace
}  // namespace ckptfs::fs
