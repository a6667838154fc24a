// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/copy_ranges.h"

#include <gtest/gtest.h>

#include "ckptfs/store_limits.h"

namespace ckptfs::fs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

TEST(CopyRanges, CopiesSmallObjectsInOneRequest) {
    EXPECT_FALSE(copy_in_parts(64 * kMiB - 1));
    EXPECT_TRUE(copy_in_parts(64 * kMiB));
}

TEST(CopyRanges, RangesCoverTheObjectWithinS3sLimits) {
    for (const std::uint64_t size : {64 * kMiB, 64 * kMiB + 1, 3000 * kMiB, 5 * kTiB}) {
        const std::vector<ByteRange> ranges = copy_ranges(size);
        std::uint64_t expected_offset = 0;
        for (const ByteRange& range : ranges) {
            EXPECT_EQ(range.offset, expected_offset);
            EXPECT_GT(range.length, 0U);
            EXPECT_LE(range.length, kMaxPartSize);
            expected_offset += range.length;
        }
        EXPECT_EQ(expected_offset, size);
        EXPECT_LE(ranges.size(), static_cast<std::size_t>(kMaxPartNumber));
        EXPECT_GE(ranges.size(), 2U);
    }
}

TEST(CopyRanges, LargeObjectsUseManyPartsAtOnce) {
    EXPECT_EQ(copy_ranges(4096 * kMiB).size(), 64U);
}

}  // namespace
}  // namespace ckptfs::fs
