// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <optional>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

// The kernel sends RELEASE behind the answer to close(2), and may send the next open before it.
class Reopened : public FileSystemTest {
protected:
    void reopen() {
        fs->open(node, O_RDWR, Caller{kProcess, 0, 0},
                 [this](Result<OpenedFile> result) { opened = std::move(result); });
    }
    [[nodiscard]] std::size_t waiting(int milliseconds) const { return timer.waiting(Milliseconds(milliseconds)); }

    const Result<CreatedFile> first = create("f");
    const NodeId node = first->entry.node;
    std::optional<Result<OpenedFile>> opened;
};

TEST_F(Reopened, IsReadAndChangedThoughItsReleaseComesLater) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    reopen();
    EXPECT_FALSE(opened);
    timer.run(Milliseconds(1));
    EXPECT_FALSE(opened);
    ASSERT_TRUE(release(first->opened.handle));
    timer.run(Milliseconds(2));
    ASSERT_TRUE(opened && *opened);
    EXPECT_EQ(*read((*opened)->handle), "whole");
    EXPECT_TRUE(write((*opened)->handle, 0, "W"));
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_EQ(store.content("p/f"), "Whole");
}

TEST_F(Reopened, IsTruncatedByNameThoughItsReleaseComesLater) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    AttributeChange change;
    change.size = 3;
    const Result<Attributes> cut = answer<Attributes>([&](auto reply) {
        fs->setattr(node, std::nullopt, change, reply);
        EXPECT_EQ(waiting(1), 1U);
        EXPECT_TRUE(release(first->opened.handle));
        timer.run(Milliseconds(1));
    });
    EXPECT_TRUE(cut);
    EXPECT_EQ(store.content("p/f"), "who");
}

TEST_F(Reopened, DoesNotShareTheFailureOfWhatWasClosed) {
    store.put_object("p/f", "before");
    ASSERT_TRUE(write(first->opened.handle, 0, "lost"));
    store.inject({Operation::kPut, "p/f", store_error(EACCES, "AccessDenied", 403)});
    EXPECT_EQ(errno_of(flush(first->opened.handle)), EIO);
    reopen();
    EXPECT_FALSE(opened);
    static_cast<void>(release(first->opened.handle));
    timer.run(Milliseconds(1));
    ASSERT_TRUE(opened);
    // The name holds another version than the one that failed.
    EXPECT_EQ(errno_of(*opened), ESTALE);
    EXPECT_EQ(lookup("f")->attributes.size, 6U);
}

TEST_F(Reopened, DoesNotWaitForLongWhereItIsNotReleased) {
    ASSERT_TRUE(write(first->opened.handle, 0, "saved"));
    ASSERT_TRUE(fsync(first->opened.handle));
    reopen();
    for (int delay = 1; delay <= 64; delay *= 2) {
        EXPECT_FALSE(opened);
        EXPECT_EQ(waiting(delay), 1U);
        timer.run(Milliseconds(delay));
    }
    ASSERT_TRUE(opened && *opened);
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_TRUE(close(first->opened.handle));
}

TEST_F(Reopened, DoesNotWaitWhileItIsWritten) {
    ASSERT_TRUE(write(first->opened.handle, 0, "not saved"));
    reopen();
    ASSERT_TRUE(opened && *opened);
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/f"), "not saved");
}

TEST_F(Reopened, IsKnownUntilItsCreateIsAnswered) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    std::optional<Result<CreatedFile>> created;
    fs->create_file(kRootNode, "f", O_RDWR | O_CREAT, Caller{kProcess, 0, 0},
                    [&](Result<CreatedFile> result) { created = std::move(result); });
    EXPECT_FALSE(created);
    ASSERT_TRUE(release(first->opened.handle));
    fs->forget(node, 1);
    timer.run(Milliseconds(1));
    ASSERT_TRUE(created && *created);
    EXPECT_EQ((*created)->entry.node, node);
    EXPECT_EQ(*read((*created)->opened.handle), "whole");
    EXPECT_TRUE(close((*created)->opened.handle));
}

// The kernel may believe the size of what was given up, and would read too little, or zeros.
TEST_F(FileSystemTest, WhoOpensWhatWasGivenUpAtAnotherSizeIsToLookAgain) {
    for (const std::string text : {"", "longer than it was"}) {
        for (const int flags : {O_RDONLY, O_RDWR}) {
            store.put_object("p/" + text + std::to_string(flags), "whole");
            const std::string name = text + std::to_string(flags);
            const NodeId node = lookup(name)->node;
            const HandleId writer = open(node, O_WRONLY | O_TRUNC)->handle;
            ASSERT_TRUE(text.empty() || write(writer, 0, text));
            processes.killed = kProcess;
            static_cast<void>(close(writer));
            processes.killed = 0;
            EXPECT_EQ(errno_of(open(node, flags)), ESTALE);
            const Result<OpenedFile> opened = open(lookup(name)->node, flags);
            ASSERT_TRUE(opened) << opened.error().message;
            EXPECT_EQ(opened->direct_io, flags == O_RDWR);
            EXPECT_EQ(read(opened->handle).value(), "whole");
            ASSERT_TRUE(close(opened->handle));
        }
    }
}

}  // namespace
}  // namespace ckptfs::fs
