// SPDX-License-Identifier: Apache-2.0
#include "codec/container.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/little_endian.h"
#include "ckptfs/bucket_layout.h"

namespace ckptfs {
namespace {

// An object of these frames, all bytes of which are 'f', for a file of `size` bytes.
std::string object_of(const std::vector<FrameRecord>& frames, std::uint64_t size) {
    std::string object;
    for (const FrameRecord& frame : frames) {
        object.append(frame.stored_size, 'f');
    }
    return object + container_tail(frames, size, References::kPossible);
}

std::vector<FrameRecord> three() {
    return {{500'000, 1, false}, {1'048'603, 2, false}, {77, 3, false}};
}

TEST(Container, HasASizeThatTellsItApart) {
    for (std::uint32_t stored = 1; stored < 9000; stored += 7) {
        EXPECT_TRUE(has_marked_size(object_of({{stored, 0}}, 100).size())) << stored;
    }
    EXPECT_FALSE(has_marked_size(0));
    EXPECT_FALSE(has_marked_size(kSizeMarkModulus));
}

TEST(Container, TellsWhereEachFrameLies) {
    const std::string object = object_of(three(), 2 * kFrameSize + 10);
    const auto table = FrameTable::parse(as_bytes(object), object.size(), References::kPossible);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->size(), 2 * kFrameSize + 10);
    EXPECT_EQ(table->frame(0).stored_offset, 0U);
    EXPECT_EQ(table->frame(1).stored_offset, 500'000U);
    EXPECT_EQ(table->frame(1).size, kFrameSize);
    EXPECT_EQ(table->frame(2).stored_offset, 1'548'603U);
    EXPECT_EQ(table->frame(2).stored_size, 77U);
    EXPECT_EQ(table->frame(2).size, 10U);
    EXPECT_EQ(table->records()[2].checksum, 3U);
}

TEST(Container, FindsFramesOfALargeFile) {
    std::vector<FrameRecord> frames;
    std::uint64_t offset = 0;
    for (std::uint32_t index = 0; index < 200; ++index) {
        frames.push_back({index + 1, index});
    }
    const std::string object = object_of(frames, 200 * kFrameSize);
    const auto table = FrameTable::parse(as_bytes(object), object.size(), References::kPossible);
    ASSERT_TRUE(table);
    for (std::uint64_t index = 0; index < 200; ++index) {
        EXPECT_EQ(table->frame(index).stored_offset, offset);
        offset += index + 1;
    }
}

TEST(Container, NeedsOnlyItsEnd) {
    const std::string object = object_of(three(), 2 * kFrameSize + 10);
    const std::string_view end = std::string_view(object).substr(object.size() - kSizeTail);
    EXPECT_EQ(container_file_size(as_bytes(end), object.size()).value(), 2 * kFrameSize + 10);
    const std::uint64_t needed = table_size(as_bytes(end), object.size()).value();
    EXPECT_TRUE(FrameTable::parse(as_bytes(object).last(needed), object.size(), References::kPossible));
    EXPECT_FALSE(FrameTable::parse(as_bytes(object).last(needed - 1), object.size(), References::kPossible));
}

// The seekable format of the zstd project, to the byte.
TEST(Container, EndsInAStandardSeekTable) {
    const std::string tail = container_tail({{27, 0x01020304}}, 15, References::kNever);
    ASSERT_GE(tail.size(), 8U + 8 + 12 + 9);
    const char* const table = tail.data() + tail.size() - (8 + 12 + 9);
    EXPECT_EQ(load_u32(table), 0x184D2A5EU);
    EXPECT_EQ(load_u32(table + 4), 12U + 9);
    EXPECT_EQ(load_u32(table + 8), 27U);
    EXPECT_EQ(load_u32(table + 12), 15U);
    EXPECT_EQ(load_u32(table + 16), 0x01020304U);
    EXPECT_EQ(load_u32(table + 20), 1U);
    EXPECT_EQ(static_cast<unsigned char>(table[24]), 0x80);
    EXPECT_EQ(load_u32(table + 25), 0x8F92EAB1U);
    EXPECT_EQ(load_u32(tail.data()), 0x184D2A5DU);
    EXPECT_EQ(load_u32(tail.data() + 4) + 8 + 8 + 12 + 9, tail.size());
}

TEST(Container, SaysThatNoFrameRefersToAnother) {
    std::vector<FrameRecord> frames = three();
    const auto any = [](const std::string& object, References references) {
        const auto table = FrameTable::parse(as_bytes(object), object.size(), references);
        return table && table->records()[0].may_refer && table->records()[2].may_refer;
    };
    const std::string none = object_of(frames, 2 * kFrameSize + 10);
    EXPECT_EQ(static_cast<unsigned char>(none[none.size() - 5]), 0x81);
    EXPECT_FALSE(any(none, References::kPossible));
    frames[1].may_refer = true;
    const std::string one = object_of(frames, 2 * kFrameSize + 10);
    EXPECT_EQ(static_cast<unsigned char>(one[one.size() - 5]), 0x80);
    EXPECT_TRUE(any(one, References::kPossible));
    EXPECT_FALSE(any(one, References::kNever));
}

TEST(Container, RefusesWhatItsTableClaims) {
    const std::string good = object_of(three(), 2 * kFrameSize + 10);
    const std::size_t table = good.size() - (8 + 3 * 12 + 9);
    const auto with = [&](std::size_t offset, std::uint32_t value) {
        std::string bad = good;
        store_u32(bad.data() + table + offset, value);
        return FrameTable::parse(as_bytes(bad), bad.size(), References::kPossible);
    };
    ASSERT_TRUE(with(8, 500'000));
    EXPECT_FALSE(with(0, 1)) << "another skippable frame";
    EXPECT_FALSE(with(4, 1)) << "its size";
    EXPECT_FALSE(with(8, 0)) << "an empty frame";
    EXPECT_FALSE(with(8, 0xFFFFFFFF)) << "a frame larger than a buffer";
    EXPECT_FALSE(with(8, 1'000'000)) << "frames larger than the object";
    EXPECT_FALSE(with(12, 0xFFFFFFFF)) << "a frame of gigabytes";
    EXPECT_FALSE(with(12, kFrameSize - 1)) << "a short frame in the middle";
    EXPECT_FALSE(with(36, 0)) << "an empty last frame";
    EXPECT_FALSE(with(44, 0xFFFFFFFF)) << "the number of frames";
    EXPECT_FALSE(with(44, 0)) << "no frames";
    EXPECT_FALSE(with(49, 0)) << "no magic number";
    std::string end = good.substr(good.size() - kSizeTail);
    store_u32(end.data() + end.size() - 9, 5U << 20);
    EXPECT_TRUE(table_size(as_bytes(end), std::uint64_t{5} << 40)) << "the largest file";
    store_u32(end.data() + end.size() - 9, (5U << 20) + 1);
    EXPECT_FALSE(table_size(as_bytes(end), std::uint64_t{5} << 40)) << "more frames than a file can have";
}

TEST(Container, RefusesEveryShortOrDamagedEnd) {
    const std::string object = object_of({{40, 9}}, 100);
    for (std::size_t size = 0; size < 29; ++size) {
        EXPECT_FALSE(FrameTable::parse(as_bytes(object).last(size), object.size(), References::kPossible)) << size;
    }
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::string bad = object;
        for (int change = 0; change < 3; ++change) {
            bad[bad.size() - 1 - random() % 60] = static_cast<char>(random());
        }
        const auto table = FrameTable::parse(as_bytes(bad), bad.size(), References::kPossible);
        if (table) {
            EXPECT_LE(table->frame(0).stored_offset + table->frame(0).stored_size, bad.size());
            EXPECT_LE(table->size(), kFrameSize);
        }
    }
}

TEST(Container, PaddingBeforeAFrameIsPassedOver) {
    const std::string frame = skippable_frame(100).to_string() + skippable_frame(8).to_string() + "frame";
    EXPECT_EQ(leading_skippable(as_bytes(frame)).value(), 108U);
    EXPECT_EQ(leading_skippable(as_bytes("frame, no padding")).value(), 0U);
    EXPECT_FALSE(leading_skippable(as_bytes(frame).first(50)));
}

}  // namespace
}  // namespace ckptfs
