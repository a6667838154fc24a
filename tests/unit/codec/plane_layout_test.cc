// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_layout.h"

#include <gtest/gtest.h>

#include "codec/entropy.h"
#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

constexpr std::size_t kFrame = std::size_t{1} << 20;

std::vector<SubBlock> plan(const Bytes& bytes) {
    std::vector<SubBlock> blocks;
    plan_sub_blocks(bytes, blocks);
    std::size_t end = 0;
    for (const SubBlock& block : blocks) {
        EXPECT_EQ(block.offset, end);
        EXPECT_GT(block.size, 0U);
        EXPECT_LT(block.layout.phase, block.layout.width);
        end += block.size;
    }
    EXPECT_EQ(end, bytes.size());
    return blocks;
}

Bytes shifted(std::size_t by, const Bytes& bytes) {
    Bytes all = testing::joined({testing::random_bytes(by), bytes});
    all.resize(bytes.size());
    return all;
}

TEST(Entropy, OfASampleIsNearThatOfItsSource) {
    ByteCounts counts{};
    EXPECT_EQ(bits_per_byte(counts), 0);
    counts[7] = 100;
    EXPECT_EQ(bits_per_byte(counts), 0);
    counts[8] = 100;
    EXPECT_NEAR(bits_per_byte(counts), 1, 0.01);
    counts = {};
    for (const std::byte byte : testing::random_bytes(1024)) {
        ++counts[std::to_integer<std::size_t>(byte)];
    }
    EXPECT_NEAR(bits_per_byte(counts), 8, 0.03);
}

TEST(PlaneLayout, FindsWidthAndPhaseOfWeightsAtEveryOffset) {
    struct Type {
        unsigned width;
        Bytes bytes;
    };
    const Type types[] = {
        {2, testing::bf16(kFrame)}, {2, testing::fp16(kFrame)}, {4, testing::fp32(kFrame)}, {8, testing::fp64(kFrame)}};
    for (const auto& [width, bytes] : types) {
        for (unsigned offset = 0; offset < 8; ++offset) {
            const std::vector<SubBlock> blocks = plan(shifted(offset, bytes));
            std::size_t begin = 0;
            for (const SubBlock& block : blocks) {
                EXPECT_EQ(block.kind, SubBlockKind::kElements);
                EXPECT_EQ(block.layout.width, width);
                EXPECT_EQ((block.offset + block.layout.phase) % width, offset % width) << width << " at " << offset;
                begin = block.offset + block.size;
            }
            EXPECT_EQ(begin, kFrame);
        }
    }
}

TEST(PlaneLayout, MovesSignsAndTheBitsThatExponentsHaveInCommon) {
    // Weights are far below 2 and far above 2^-31: exponents 96 to 127.
    EXPECT_EQ(plan(testing::bf16(kFrame)).front().layout.rotation, 2U);
    EXPECT_EQ(plan(testing::fp32(kFrame)).front().layout.rotation, 2U);
    // Zeros have the highest bit of the exponent in common with them.
    Bytes sparse = testing::bf16(kFrame);
    for (std::size_t i = 0; i < sparse.size(); i += 26) {
        sparse[i] = std::byte{0};
        sparse[i + 1] = std::byte{0};
    }
    EXPECT_EQ(plan(sparse).front().layout.rotation, 2U);
    for (const SubBlock& block : plan(testing::token_ids(kFrame))) {
        EXPECT_EQ(block.layout.rotation, 0U);
    }
}

TEST(PlaneLayout, FollowsChangesInsideAFrame) {
    const Bytes bytes =
        testing::joined({testing::bf16(kLayoutCell * 2), testing::random_bytes(kLayoutCell), Bytes(kLayoutCell),
                         testing::fp32(kLayoutCell * 2), testing::text(kLayoutCell * 2)});
    const std::vector<SubBlock> blocks = plan(bytes);
    ASSERT_EQ(blocks.size(), 6U);
    EXPECT_EQ(blocks[0].layout.width, 2U);
    EXPECT_EQ(blocks[1].layout.width, 2U);
    EXPECT_EQ(blocks[2].kind, SubBlockKind::kRandom);
    EXPECT_EQ(blocks[3].kind, SubBlockKind::kConstant);
    EXPECT_EQ(blocks[4].layout.width, 4U);
    EXPECT_EQ(blocks[5].kind, SubBlockKind::kElements);
    EXPECT_EQ(blocks[5].layout.width, 1U);
}

TEST(PlaneLayout, TextIsOpaqueAndIntegersAreNot) {
    for (const SubBlock& block : plan(testing::text(kFrame))) {
        EXPECT_EQ(block.layout.width, 1U);
    }
    for (const SubBlock& block : plan(testing::token_ids(kFrame))) {
        EXPECT_EQ(block.layout.width, 8U);
    }
}

TEST(PlaneLayout, RandomBytesAreOneHopelessBlock) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const std::vector<SubBlock> blocks = plan(testing::random_bytes(kFrame, seed));
        ASSERT_EQ(blocks.size(), 1U);
        EXPECT_EQ(blocks[0].kind, SubBlockKind::kRandom);
    }
}

}  // namespace
}  // namespace ckptfs
