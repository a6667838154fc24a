// SPDX-License-Identifier: Apache-2.0
// Which of several versions of a name a commit marker saves.
#include <fcntl.h>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

// An attempt of one process, and the retry of another.
class MarkerVersions : public FileSystemTest {
protected:
    static constexpr pid_t kRetry = kProcess + 1;

    Result<OpenedFile> truncate_as(pid_t process) {
        const NodeId node = lookup("shard")->node;
        return answer<OpenedFile>([&](auto reply) {
            fs->open(node, O_WRONLY | O_TRUNC, Caller{process, 0, 0}, reply);
        });
    }
    // Beside one that is open: the name gets another node.
    HandleId open_anew(pid_t process) {
        EXPECT_EQ(errno_of(truncate_as(process)), ESTALE);
        return truncate_as(process)->handle;
    }
};

// A writer of an attempt that was given up goes on beside the retry.
TEST_F(MarkerVersions, AMarkerPublishesNoVersionThatALaterOneHasReplaced) {
    const HandleId earlier = create("shard", O_WRONLY | O_TRUNC)->opened.handle;
    ASSERT_TRUE(write(earlier, 0, "half"));
    const HandleId later = open_anew(kRetry);
    ASSERT_TRUE(write(earlier, 4, " of it"));
    ASSERT_TRUE(write(later, 0, "whole"));
    ASSERT_TRUE(flush(later, kRetry) && release(later));
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_EQ(store.content("p/shard"), "whole");
    EXPECT_TRUE(store.exists("p/.metadata"));
    EXPECT_TRUE(close(earlier));
    EXPECT_EQ(store.content("p/shard"), "half of it") << "its process has asked for that";
}

TEST_F(MarkerVersions, AMarkerSavesAVersionThatHasItsNameAgain) {
    const HandleId earlier = create("shard", O_WRONLY | O_TRUNC)->opened.handle;
    ASSERT_TRUE(write(earlier, 0, "one"));
    const HandleId later = open_anew(kRetry);
    ASSERT_TRUE(write(later, 0, "other"));
    ASSERT_TRUE(flush(later, kRetry) && release(later));
    ASSERT_TRUE(write(earlier, 3, " two"));
    ASSERT_TRUE(fsync(earlier));
    EXPECT_EQ(store.content("p/shard"), "one two") << "the last commit of a name wins";
    ASSERT_TRUE(write(earlier, 7, " three"));
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_EQ(store.content("p/shard"), "one two three");
    EXPECT_TRUE(close(earlier));
}

// A child that it has forked holds the file.
TEST_F(MarkerVersions, AMarkerDoesNotWaitForWhatAKilledWriterLeftOfAVersionThatWasReplaced) {
    const HandleId left = create("shard", O_WRONLY | O_TRUNC)->opened.handle;
    ASSERT_TRUE(write(left, 0, "half"));
    processes.killed = kProcess;
    processes.others_write = true;
    ASSERT_TRUE(flush(left));
    processes.killed = 0;
    const HandleId later = open_anew(kProcess);
    ASSERT_TRUE(write(later, 0, "whole"));
    ASSERT_TRUE(close(later));
    save("m.tmp", "metadata");
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_TRUE(fsync(left)) << "of a version that was discarded";
    EXPECT_TRUE(release(left));
    EXPECT_EQ(store.content("p/shard"), "whole");
}

}  // namespace
}  // namespace ckptfs::fs
