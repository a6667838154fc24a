// SPDX-License-Identifier: Apache-2.0
#include "write/part_plan.h"

#include <gtest/gtest.h>

#include "ckptfs/codec.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

WriteConfig fixed(std::uint64_t part_size) {
    WriteConfig config;
    config.part_size = part_size;
    return config;
}

// Part sizes until `size` is held; fails the test where a rule of S3 or of the budget is broken.
std::vector<std::uint64_t> parts_of(const PartPlan& plan, std::uint64_t size, std::uint64_t known, std::uint64_t cap) {
    std::vector<std::uint64_t> parts;
    for (std::uint64_t offset = 0; offset < size;) {
        const std::uint64_t part = plan.part_size(static_cast<int>(parts.size()) + 1, offset, known);
        EXPECT_GE(part, kMinPartSize);
        EXPECT_LE(part, cap);
        EXPECT_LE(part, kMaxPartSize);
        EXPECT_EQ(part % kFrameSize, 0U);
        if (part == 0) {
            return {};
        }
        parts.push_back(std::min(part, size - offset));
        offset += parts.back();
    }
    return parts;
}

TEST(PartPlan, StartsSmallAndGrows) {
    const PartPlan plan({}, 768 * kMiB);
    EXPECT_EQ(plan.part_size(1, 0, 0), 8 * kMiB);
    EXPECT_EQ(plan.part_size(500, 500 * 8 * kMiB, 0), 8 * kMiB);
    EXPECT_GT(plan.part_size(3000, 100 * kGiB, 0), 32 * kMiB);
    std::uint64_t before = 0;
    for (int number = 1; number <= kMaxPartNumber; ++number) {
        const std::uint64_t size = plan.part_size(number, 0, 0);
        EXPECT_GE(size, before);
        before = size;
    }
    EXPECT_EQ(before, 192 * kMiB);
}

TEST(PartPlan, SaysThatTheWantedSizeIsMoreThanTheBudgetAllows) {
    EXPECT_EQ(PartPlan(fixed(64 * kMiB), 256 * kMiB).lowered(), "");
    EXPECT_EQ(PartPlan({}, 20 * kMiB).lowered(), "");
    EXPECT_NE(PartPlan(fixed(65 * kMiB), 256 * kMiB).lowered().find("lowered to 64M"), std::string::npos);
}

TEST(PartPlan, HoldsItsReachInTenThousandParts) {
    for (const std::uint64_t budget : {20 * kMiB, 96 * kMiB, 768 * kMiB, 2200 * kMiB, 8 * kGiB, 64 * kGiB}) {
        const PartPlan plan({}, budget);
        const auto parts = parts_of(plan, plan.reachable_size(), 0, std::max(budget / 4, kMinPartSize));
        EXPECT_LE(parts.size(), static_cast<std::size_t>(kMaxPartNumber)) << budget;
        EXPECT_LE(plan.reachable_size(), kMaxObjectSize);
    }
}

TEST(PartPlan, ReachesTheLargestObjectWhereAQuarterOfTheBudgetSuffices) {
    // 5 TiB in 10,000 parts are 524.3 MiB a part.
    EXPECT_EQ(PartPlan({}, 4 * 530 * kMiB).reachable_size(), 5 * kTiB);
    EXPECT_EQ(PartPlan({}, 64 * kGiB).reachable_size(), 5 * kTiB);
    EXPECT_LT(PartPlan({}, 4 * 500 * kMiB).reachable_size(), 5 * kTiB);
    EXPECT_GT(PartPlan({}, 768 * kMiB).reachable_size(), kTiB);
}

TEST(PartPlan, UsesAKnownSizeToReachFurtherAndToEndSmall) {
    const std::uint64_t cap = 192 * kMiB;
    const PartPlan plan({}, 4 * cap);
    const std::uint64_t far = plan.reachable_size(2 * kTiB);
    EXPECT_GT(far, plan.reachable_size());
    EXPECT_EQ(plan.reachable_size(kGiB), plan.reachable_size());
    EXPECT_LE(parts_of(plan, far, far, cap).size(), static_cast<std::size_t>(kMaxPartNumber));

    const auto parts = parts_of(plan, kGiB, kGiB, cap);
    EXPECT_EQ(parts.front(), 8 * kMiB);
    EXPECT_LE(parts.back(), 5 * kMiB);
    // Growing past what was told goes on as if nothing had been.
    EXPECT_EQ(plan.part_size(200, 2 * kGiB, kGiB), 8 * kMiB);
}

TEST(PartPlan, KeepsASmallKnownSizeInOnePart) {
    EXPECT_EQ(PartPlan({}, 768 * kMiB).part_size(1, 0, 6 * kMiB), 8 * kMiB);
}

TEST(PartPlan, FillsTheBudgetWithFewerPartsWhereTheStoreAsksForFewerRequests) {
    const PartPlan plan({}, 768 * kMiB);
    EXPECT_EQ(plan.part_size(1, 0, 0, {64, 1}), 8 * kMiB);
    EXPECT_EQ(plan.part_size(1, 0, 0, {15, 1}), 24 * kMiB);
    EXPECT_EQ(plan.part_size(1, 0, 0, {2, 1}), 128 * kMiB);
    // What carries no data takes turns with it.
    EXPECT_EQ(plan.part_size(1, 0, 0, {1, 1}), 64 * kMiB);
    // Each file has a part that it fills.
    EXPECT_EQ(plan.part_size(1, 0, 0, {2, 8}), 38 * kMiB);
    // At most a quarter of the budget.
    EXPECT_EQ(PartPlan({}, 96 * kMiB).part_size(1, 0, 0, {1, 1}), 24 * kMiB);
    EXPECT_EQ(PartPlan(fixed(16 * kMiB), 768 * kMiB).part_size(1, 0, 0, {1, 1}), 16 * kMiB);
}

TEST(PartPlan, EndsAFileOfKnownSizeInAsFewPartsAsTheStoreTakesAtOnce) {
    const PartPlan plan({}, 768 * kMiB);
    EXPECT_EQ(plan.part_size(2, 128 * kMiB, 256 * kMiB, {2, 1}), 64 * kMiB);
    EXPECT_EQ(plan.part_size(2, 128 * kMiB, 256 * kMiB), 8 * kMiB);
}

TEST(PartPlan, TakesAFixedSizeInWholeFramesWithinTheLimits) {
    EXPECT_EQ(PartPlan(fixed(16 * kMiB), 768 * kMiB).part_size(7, 0, 0), 16 * kMiB);
    EXPECT_EQ(PartPlan(fixed(16 * kMiB + 5), 768 * kMiB).part_size(7, 0, 0), 16 * kMiB);
    EXPECT_EQ(PartPlan(fixed(kMiB), 768 * kMiB).part_size(1, 0, 0), kMinPartSize);
    EXPECT_EQ(PartPlan(fixed(900 * kMiB), 768 * kMiB).part_size(1, 0, 0), 192 * kMiB);
    EXPECT_EQ(PartPlan(fixed(16 * kMiB), 768 * kMiB).reachable_size(kTiB), 16 * kMiB * 10'000);
}

TEST(PartPlan, KeepsPartsEqualForStoresThatNeedIt) {
    WriteConfig config;
    config.equal_parts = true;
    const PartPlan plan(config, 768 * kMiB);
    for (const int number : {1, 2, 5000, kMaxPartNumber}) {
        EXPECT_EQ(plan.part_size(number, 0, 100 * kMiB), plan.equal_size());
    }
}

TEST(PartBeforeACopy, LeavesNoPartThatIsTooSmall) {
    for (std::uint64_t planned = 5; planned < 40; ++planned) {
        for (std::uint64_t length = 5; length < 100; ++length) {
            for (std::uint64_t begin = 0; begin < length;) {
                const std::uint64_t size = size_before_copy(planned * kMiB, begin * kMiB, length * kMiB) / kMiB;
                const std::uint64_t end = begin + size;
                EXPECT_GE(size, 5U);
                EXPECT_LE(size, std::max<std::uint64_t>(planned, 9));
                EXPECT_TRUE(end >= length || leaves_a_part(end * kMiB, length * kMiB))
                    << planned << ": from " << begin << " of " << length;
                begin = end;
            }
        }
    }
    EXPECT_EQ(size_before_copy(8 * kMiB, kMiB, 0), 8 * kMiB);
    EXPECT_FALSE(leaves_a_part(6 * kMiB, 10 * kMiB));
    EXPECT_TRUE(leaves_a_part(6 * kMiB, 0));
}

TEST(CopyPlan, FetchesWhatIsTooSmallToBeCopied) {
    const PartPlan plan({}, 768 * kMiB);
    EXPECT_TRUE(plan_copy(0, plan).pieces.empty());
    EXPECT_TRUE(plan_copy(kMinPartSize - 1, plan).pieces.empty());
    EXPECT_EQ(plan_copy(kMinPartSize - 1, plan).fetch_from, 0U);
}

TEST(CopyPlan, CopiesEverythingElseInPiecesThatAreParts) {
    const PartPlan plan({}, 768 * kMiB);
    for (const std::uint64_t size :
         {kMinPartSize, kMinPartSize + 1, 256 * kMiB, 256 * kMiB + 1, 10 * kGiB + 3, 5 * kTiB}) {
        const CopyPlan copy = plan_copy(size, plan);
        std::uint64_t end = 0;
        for (const CopyPlan::Piece& piece : copy.pieces) {
            EXPECT_EQ(piece.offset, end);
            EXPECT_GE(piece.length, kMinPartSize);
            EXPECT_LE(piece.length, kMaxPartSize);
            end += piece.length;
        }
        EXPECT_EQ(end, size);
        EXPECT_EQ(copy.fetch_from, size);
        EXPECT_LE(copy.pieces.size(), 2000U);
    }
}

TEST(CopyPlan, CopiesRunsOfALargeObjectInFewPieces) {
    std::size_t pieces = 0;
    for (std::uint64_t run = 0; run < 5; ++run) {
        const CopyPlan copy = plan_run_copy(run * kTiB, kTiB - 5 * kMiB, 5 * kTiB);
        EXPECT_EQ(copy.pieces.front().offset, run * kTiB);
        EXPECT_EQ(copy.fetch_from, (run + 1) * kTiB - 5 * kMiB);
        pieces += copy.pieces.size();
    }
    EXPECT_LE(pieces, 2005U);
}

TEST(CopyPlan, CopiesEqualPartsAndFetchesTheRest) {
    const PartPlan plan(fixed(8 * kMiB), 768 * kMiB);
    const CopyPlan copy = plan_copy(20 * kMiB, plan);
    ASSERT_EQ(copy.pieces.size(), 2U);
    EXPECT_EQ(copy.pieces[1].offset, 8 * kMiB);
    EXPECT_EQ(copy.pieces[1].length, 8 * kMiB);
    EXPECT_EQ(copy.fetch_from, 16 * kMiB);
}

}  // namespace
}  // namespace ckptfs
