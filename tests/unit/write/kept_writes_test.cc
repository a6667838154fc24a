// SPDX-License-Identifier: Apache-2.0
// What a node keeps of the files that are written on it.
#include <gtest/gtest.h>

#include <string>

#include "support/memory_file_cache.h"
#include "unit/write/writer_fixture.h"

namespace ckptfs {
namespace {

using testing::kMiB;
using testing::MemoryFileCache;
using testing::Operation;
using testing::pattern;
using testing::WriterFixture;

class KeptWrites : public ::testing::TestWithParam<const char*>, protected WriterFixture {
protected:
    KeptWrites() : WriterFixture(256 * kMiB, {}, GetParam()) { environment.files = &kept; }
    [[nodiscard]] std::string joined(const std::string& etag) const {
        std::string all;
        for (const auto& [frame, bytes] : kept.frames(etag)) {
            EXPECT_EQ(frame * kFrameSize, all.size());
            all += bytes;
        }
        return all;
    }

    MemoryFileCache kept;
};

INSTANTIATE_TEST_SUITE_P(All, KeptWrites, ::testing::Values("none", "auto"));

TEST_P(KeptWrites, AreAllOfAFileThatIsWrittenInOrder) {
    for (const std::uint64_t size : {std::uint64_t{300'000}, kMiB, 40 * kMiB + 12345}) {
        const auto writer = open();
        const std::string content = pattern(size);
        ASSERT_TRUE(write(*writer, 0, content, 100'001));
        const auto committed = commit(*writer);
        ASSERT_TRUE(committed);
        EXPECT_TRUE(joined(committed->etag) == content);
    }
}

TEST_P(KeptWrites, AreNoneOfASmallFile) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(kSmallestKept)));
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed);
    EXPECT_TRUE(kept.frames(committed->etag).empty());
}

TEST_P(KeptWrites, AreNotThoseThatWereChangedSince) {
    const auto writer = open();
    std::string content = pattern(4 * kMiB);
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(write(*writer, kMiB + 10, "changed"));
    content.replace(kMiB + 10, 7, "changed");
    ASSERT_TRUE(truncate(*writer, 3 * kMiB + 5));
    content.resize(3 * kMiB + 5);
    const auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    const auto frames = kept.frames(committed->etag);
    EXPECT_TRUE(frames.contains(0));
    EXPECT_TRUE(frames.contains(2));
    for (const auto& [frame, bytes] : frames) {
        EXPECT_TRUE(bytes == content.substr(frame * kMiB, kMiB)) << frame;
    }
}

TEST_P(KeptWrites, AreNoneOfWhatWasNotPublished) {
    const auto writer = open();
    ASSERT_TRUE(write(*writer, 0, pattern(kMiB)));
    break_next(Operation::kPut);
    EXPECT_FALSE(commit(*writer));
    EXPECT_EQ(kept.finished(), 0U);
}

}  // namespace
}  // namespace ckptfs
