// SPDX-License-Identifier: Apache-2.0
// What happens to a staged file while something else is under way.
#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <string>

#include "unit/staged/staged_file_fixture.h"

namespace ckptfs::testing {
namespace {

class StagedOrderTest : public StagedFileTest {};
INSTANTIATE_TEST_SUITE_P(Codecs, StagedOrderTest, ::testing::Values("none", "auto"));

TEST_P(StagedOrderTest, ATruncationDoesNotForgetThatTheStreamHasFailed) {
    for (const std::uint64_t size : {std::uint64_t{0}, 20 * kMiB}) {
        store.hold(Operation::kUploadPart);
        const auto staged = open_staged();
        ASSERT_TRUE(write(*staged, 0, bytes(20 * kMiB)));
        ASSERT_TRUE(store.wait_until_held(Operation::kUploadPart, 1));
        store.inject(Fault{Operation::kUploadPart, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        store.release(Operation::kUploadPart);
        ASSERT_TRUE(eventually([&] { return staged->failed().has_value(); }));
        EXPECT_FALSE(truncate(*staged, size));
        EXPECT_TRUE(staged->failed());
        EXPECT_FALSE(write(*staged, 0, "more"));
        EXPECT_FALSE(commit(*staged));
        EXPECT_TRUE(store.keys().empty());
    }
}

TEST_P(StagedOrderTest, AReadOfOldAndNewBytesSpansACommit) {
    const std::string original = bytes(8 * kMiB);
    std::string text = original;
    const auto staged = open_staged(save(original), Streaming::kNever);
    change(*staged, text, 7 * kMiB, bytes(kMiB, 1));
    store.hold(Operation::kGet);
    Answer<Result<Payload>> answer;
    staged->read(6 * kMiB + kMiB / 2, kMiB, answer.callback());
    ASSERT_TRUE(store.wait_until_held(Operation::kGet, 1));
    auto committed = std::async(std::launch::async, [&] { return commit(*staged).has_value(); });
    // What a commit needs of a container it fetches, and may be held, too.
    if (GetParam() == std::string("none")) {
        EXPECT_TRUE(committed.get());
        store.release(Operation::kGet);
    } else {
        store.release(Operation::kGet);
        EXPECT_TRUE(committed.get());
    }
    const Result<Payload> read = answer.get();
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->to_string() == text.substr(6 * kMiB + kMiB / 2, kMiB));
}

}  // namespace
}  // namespace ckptfs::testing
