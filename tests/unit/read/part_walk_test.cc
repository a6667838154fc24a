// SPDX-License-Identifier: Apache-2.0
#include "read/part_walk.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPlenty = 192;

using Steps = std::vector<BlockSpan>;

// A thousand blocks, with parts 40 MiB apart that begin somewhere in a page.
struct Walk {
    Walk() {
        for (std::uint64_t begin = 0; begin < 1000; begin += 40) {
            parts.push_back(begin * kMiB + 700);
        }
    }
    Steps jump(std::uint64_t offset, std::uint64_t size = kMiB, std::uint64_t limit = kPlenty) {
        return walk.on_read(offset, size, true, parts, limit);
    }
    Steps go_on(std::uint64_t offset, std::uint64_t size) { return walk.on_read(offset, size, false, parts, kPlenty); }
    // A header is read, and what follows it in the same request.
    Steps look_at(std::uint64_t part, std::uint64_t limit = kPlenty) {
        const Steps steps = jump(part * kMiB, kMiB, limit);
        static_cast<void>(go_on((part + 1) * kMiB, kPage));
        return steps;
    }
    // A page fault, around which the kernel reads 16 MiB.
    Steps touch(std::uint64_t part) {
        const Steps steps = jump((part - 8) * kMiB);
        for (std::uint64_t piece = 1; piece < 16; ++piece) {
            static_cast<void>(go_on((part - 8 + piece) * kMiB, kMiB));
        }
        return steps;
    }

    PartOffsets parts;
    PartWalk walk{1000};
};

TEST(PartWalk, FetchesWhatTheNextLooksWillRead) {
    Walk walk;
    static_cast<void>(walk.go_on(0, kMiB));
    EXPECT_TRUE(walk.look_at(40).empty());
    EXPECT_EQ(walk.look_at(80, 6), (Steps{{120, 122}, {160, 162}, {200, 202}}));
    EXPECT_EQ(walk.look_at(120, 6), (Steps{{160, 162}, {200, 202}, {240, 242}}));
}

TEST(PartWalk, FetchesWhatThePageFaultsWillBring) {
    Walk walk;
    EXPECT_TRUE(walk.touch(40).empty());
    EXPECT_TRUE(walk.touch(80).empty());
    EXPECT_EQ(walk.touch(120), (Steps{{152, 168},
                                      {192, 208},
                                      {232, 248},
                                      {272, 288},
                                      {312, 328},
                                      {352, 368},
                                      {392, 408},
                                      {432, 448},
                                      {472, 488},
                                      {512, 528},
                                      {552, 568},
                                      {592, 608}}));
}

TEST(PartWalk, EndsWithTheFile) {
    Walk walk;
    static_cast<void>(walk.look_at(880));
    static_cast<void>(walk.look_at(920));
    EXPECT_TRUE(walk.look_at(960).empty());
    EXPECT_TRUE(walk.jump(10 * kMiB).empty());
}

TEST(PartWalk, TakesPiecesInAnyOrder) {
    Walk walk;
    static_cast<void>(walk.jump(41 * kMiB, kPage));
    static_cast<void>(walk.go_on(40 * kMiB, kMiB));
    static_cast<void>(walk.jump(81 * kMiB, kPage));
    static_cast<void>(walk.go_on(80 * kMiB, kMiB));
    EXPECT_EQ(walk.jump(121 * kMiB, kPage).front(), (BlockSpan{160, 162}));
    static_cast<void>(walk.go_on(120 * kMiB, kMiB));
    EXPECT_EQ(walk.look_at(160).front(), (BlockSpan{200, 202}));
}

TEST(PartWalk, PassesPartsThatTheStepBeforeHasBrought) {
    Walk walk;
    PartOffsets with_small_ones;
    for (const std::uint64_t part : walk.parts) {
        for (const std::uint64_t behind : {0U, 1000U, 2000U}) {
            with_small_ones.push_back(part + behind);
        }
    }
    walk.parts = with_small_ones;
    static_cast<void>(walk.look_at(40));
    static_cast<void>(walk.look_at(80));
    EXPECT_EQ(walk.look_at(120, 4), (Steps{{160, 162}, {200, 202}}));
}

TEST(PartWalk, IsNoneWherePartsAreSkipped) {
    Walk walk;
    for (const std::uint64_t part : {40U, 120U, 200U, 280U, 360U}) {
        EXPECT_TRUE(walk.look_at(part).empty()) << part;
    }
}

TEST(PartWalk, IsNoneElsewhereInTheParts) {
    Walk walk;
    for (const std::uint64_t place : {60U, 100U, 140U, 180U, 220U}) {
        EXPECT_TRUE(walk.look_at(place).empty()) << place;
    }
}

TEST(PartWalk, IsNoneWherePartsAreReadWhole) {
    Walk walk;
    for (const std::uint64_t part : {40U, 80U, 120U, 160U}) {
        EXPECT_TRUE(walk.jump(part * kMiB).empty()) << part;
        for (std::uint64_t block = 1; block < 30; ++block) {
            static_cast<void>(walk.go_on((part + block) * kMiB, kMiB));
        }
    }
}

TEST(PartWalk, IsNoneInAFileWithoutParts) {
    Walk walk;
    walk.parts.clear();
    for (const std::uint64_t part : {40U, 80U, 120U}) {
        EXPECT_TRUE(walk.look_at(part).empty()) << part;
    }
}

TEST(PartWalk, TellsWhatNeedsNothingBehindIt) {
    Walk walk;
    static_cast<void>(walk.go_on(0, kMiB));
    static_cast<void>(walk.look_at(40));
    EXPECT_FALSE(walk.walk.is_step(40 * kMiB));
    static_cast<void>(walk.look_at(80));
    EXPECT_TRUE(walk.walk.is_step(80 * kMiB));
    EXPECT_TRUE(walk.walk.is_step(81 * kMiB));
    EXPECT_FALSE(walk.walk.is_step(82 * kMiB));
    EXPECT_FALSE(walk.walk.is_step(40 * kMiB));
}

TEST(PartWalk, IsToldAgainWhatIsNotFetched) {
    Walk walk;
    static_cast<void>(walk.look_at(40));
    static_cast<void>(walk.look_at(80));
    const Steps steps = walk.jump(120 * kMiB);
    EXPECT_FALSE(steps.empty());
    walk.walk.not_fetched();
    EXPECT_EQ(walk.go_on(121 * kMiB, kPage), steps);
    EXPECT_TRUE(walk.go_on(121 * kMiB, kPage).empty());
}

}  // namespace
}  // namespace ckptfs
