// SPDX-License-Identifier: Apache-2.0
// What becomes of a writer whose file gets another name.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/write/writer_fixture.h"
#include "write/file_writer.h"

namespace ckptfs {
namespace {

using testing::Answer;
using testing::kMiB;
using testing::Operation;
using testing::pattern;
using testing::WriterFixture;

class WriterMovesTest : public ::testing::Test, protected WriterFixture {
protected:
    void TearDown() override {
        EXPECT_TRUE(all_buffers_returned());
        EXPECT_TRUE(no_upload_left());
    }
};

TEST_F(WriterMovesTest, MovesToAnotherNameWhileNothingHasLeft) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "hello"));
    EXPECT_TRUE(writer->move_to("dir/renamed"));
    EXPECT_EQ(writer->key(), "dir/renamed");
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"dir/renamed"});
    EXPECT_FALSE(writer->move_to("dir/again"));
}

TEST_F(WriterMovesTest, DoesNotMoveOnceAnUploadHasBegun) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(20 * kMiB)));
    ASSERT_TRUE(testing::eventually([this] { return store.open_uploads() == 1; }));
    EXPECT_FALSE(writer->move_to("dir/renamed"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"dir/file"});
}

TEST_F(WriterMovesTest, StartsFromTheCopyAfterACommittedFileWasMoved) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "hello"));
    ASSERT_TRUE(commit(*writer));
    store.put_object("dir/renamed", "hello");
    writer->committed_moved("dir/renamed", CommittedObject{store.info("dir/renamed").etag, 5, 5, {}});
    ASSERT_TRUE(append(*writer, " world"));
    ASSERT_TRUE(commit(*writer));
    EXPECT_EQ(store.content("dir/renamed"), "hello world");
    EXPECT_EQ(store.content("dir/file"), "hello");
}

// Others truncated it while its directory was being copied.
TEST_F(WriterMovesTest, ReplacesTheCopyOfWhatItHasTruncated) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, "new"));
    store.put_object("dir/renamed", "hello");
    writer->committed_moved("dir/renamed", CommittedObject{store.info("dir/renamed").etag, 5, 5, {}});
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_EQ(store.content("dir/renamed"), "new");
}

// Its copy is there while what is kept is on its way, and the old name goes before it has come.
TEST_F(WriterMovesTest, GoesOnFromTheCopyOfWhatIsBeingFetched) {
    const std::string content = pattern(4 * kMiB + 77);
    for (const int gets_before : {0, 1, 2, 4}) {
        const auto writer = open();
        ASSERT_TRUE(write(*writer, 0, content));
        ASSERT_TRUE(commit(*writer));
        store.hold(Operation::kGet);
        Answer<Status> appended;
        writer->append(data("x"), appended.callback());
        for (int passed = 0; passed < gets_before; ++passed) {
            ASSERT_TRUE(store.wait_until_held(Operation::kGet, 1));
            store.release_one(Operation::kGet);
        }
        ASSERT_TRUE(store.wait_until_held(Operation::kGet, 1));
        store.put_object("dir/renamed", content);
        writer->committed_moved("dir/renamed",
                                CommittedObject{store.info("dir/renamed").etag, content.size(), content.size(), {}});
        Answer<Status> removed;
        store.remove({"dir/file"}, removed.callback());
        ASSERT_TRUE(removed.get());
        store.release(Operation::kGet);
        const Status status = appended.get();
        ASSERT_TRUE(status) << gets_before << ": " << status.error().message;
        ASSERT_TRUE(commit(*writer));
        EXPECT_TRUE(store.content("dir/renamed") == content + "x");
        EXPECT_FALSE(store.exists("dir/file"));
    }
}

// What was planned to be copied of the old name would be copied of the new one.
TEST_F(WriterMovesTest, FailsWhereItsCopiesArePlannedAndTheNewNameIsNotTrustedWithThem) {
    const std::string content = pattern(20 * kMiB + 77);
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(commit(*writer));
    ASSERT_TRUE(append(*writer, "x"));
    store.put_object("dir/50%", content);
    writer->committed_moved("dir/50%", CommittedObject{store.info("dir/50%").etag, content.size(), content.size(), {}});
    const auto committed = commit(*writer);
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().errno_value, EIO);
    EXPECT_NE(committed.error().message.find("renamed to dir/50%"), std::string::npos) << committed.error().message;
    EXPECT_TRUE(store.content("dir/50%") == content);
}

}  // namespace
}  // namespace ckptfs
