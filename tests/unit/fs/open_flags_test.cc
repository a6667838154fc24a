// SPDX-License-Identifier: Apache-2.0
// What the flags of a descriptor, or of one call, ask for.
#include <fcntl.h>
#include <linux/fs.h>

#include <future>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

TEST_F(FileSystemTest, PagesOfAMappingGoWhereTheyBelongThoughTheirDescriptorAppends) {
    const NodeId node = save("f", "0123456789");
    const HandleId early = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(early, 0, 4), "0123");
    // Others read it.
    EXPECT_EQ(open(node, O_RDWR | O_APPEND).error().errno_value, ESTALE);
    const HandleId handle = open(lookup("f")->node, O_RDWR | O_APPEND)->handle;
    ASSERT_TRUE(write(handle, 0, "mapped", true));
    ASSERT_TRUE(write(handle, 0, "+"));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "mapped6789+");
    // No mix of two versions.
    EXPECT_EQ(*read(early, 4, 100), "456789");
}

TEST_F(FileSystemTest, ADescriptorThatNoLongerAppendsWritesWhereItIsTold) {
    const NodeId node = save("f", "0123456789");
    const HandleId handle = open(node, O_RDWR | O_APPEND)->handle;
    ASSERT_TRUE(write(handle, 0, "+"));
    ASSERT_TRUE(write(handle, 0, "header", false, true));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "header6789+");
}

TEST_F(FileSystemTest, WhoTruncatesByADescriptorThatOnlyReadsTruncates) {
    const NodeId node = save("f", "old");
    const HandleId handle = open(node, O_RDONLY | O_TRUNC)->handle;
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "");
}

TEST_F(FileSystemTest, WhoTruncatesByADescriptorThatOnlyReadsLeavesTheInodeToItsReaders) {
    const NodeId node = save("f", "old");
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "old");
    EXPECT_EQ(errno_of(open(node, O_RDONLY | O_TRUNC)), ESTALE);
}

// They may go on in another version than others of their inode.
TEST_F(FileSystemTest, WhoTruncatesOrAppendsSharesNoPages) {
    // A kernel before 6.6 maps nothing else.
    for (const bool by_option : {true, false}) {
        read_environment.config.direct_io = by_option ? DirectIo::kNever : DirectIo::kAuto;
        kernel_cache.maps_direct_io = by_option;
        for (const int access : {O_WRONLY, O_RDWR}) {
            for (const int flag : {0, O_APPEND, O_TRUNC}) {
                store.put_object("p/f", "old");
                const Result<OpenedFile> opened = open(lookup("f")->node, access | flag);
                ASSERT_TRUE(opened);
                EXPECT_EQ(opened->direct_io, flag != 0) << by_option << " " << access << " " << flag;
                ASSERT_TRUE(close(opened->handle));
                ASSERT_TRUE(unlink("f"));
            }
        }
    }
}

TEST_F(FileSystemTest, ARenameThatIsNotSupportedSavesNothing) {
    const HandleId half = create("x")->opened.handle;
    ASSERT_TRUE(write(half, 0, "half"));
    save("t", "marker");
    EXPECT_EQ(errno_of(rename("t", ".metadata", RENAME_EXCHANGE)), EINVAL);
    EXPECT_FALSE(store.exists("p/x"));
}

}  // namespace
// A child writes to a descriptor that its parent opened and closed, and the parent has inherited another one.
TEST_F(FileSystemTest, ADescriptorThatWasOpenedOtherwiseIsNoDuplicateOfTheOneThatIsClosed) {
    constexpr pid_t kParent = kProcess + 5;
    for (const int access : {O_RDWR, O_WRONLY}) {
        SCOPED_TRACE(access);
        store.put_object("p/f", "old");
        const NodeId node = lookup("f")->node;
        const Result<OpenedFile> file = answer<OpenedFile>([&](auto reply) {
            fs->open(node, O_RDWR, Caller{kParent, 0, 0}, reply);
        });
        ASSERT_TRUE(write(file->handle, 3, "new"));
        processes.descriptors[kParent] = 1;
        processes.opened_with = access;
        ASSERT_TRUE(flush(file->handle));
        EXPECT_EQ(store.content("p/f"), access == O_RDWR ? "old" : "oldnew");
        processes.descriptors.clear();
        ASSERT_TRUE(release(file->handle));
        ASSERT_TRUE(unlink("f"));
    }
}

}  // namespace ckptfs::fs
