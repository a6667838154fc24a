// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_split.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

struct Shape {
    unsigned width;
    unsigned rotation;
};
constexpr std::array kShapes{Shape{1, 0}, Shape{2, 0}, Shape{2, 1}, Shape{2, 3}, Shape{2, 7}, Shape{4, 0},
                             Shape{4, 1}, Shape{4, 3}, Shape{4, 7}, Shape{8, 0}, Shape{8, 1}, Shape{8, 7}};
constexpr std::size_t kCounts[] = {0, 1, 15, 31, 32, 33, 63, 64, 65, 1000, 4096 + 17};

Bytes split_with(const PlaneKernels& kernels, const std::byte* elements, std::size_t count, Shape shape) {
    Bytes all(count * shape.width);
    std::array<std::byte*, kMaxElementWidth> planes{};
    for (unsigned k = 0; k < shape.width; ++k) {
        planes[k] = all.data() + k * count;
    }
    kernels.split(elements, count, shape.width, shape.rotation, planes);
    return all;
}

Bytes merge_with(const PlaneKernels& kernels, const Bytes& all, std::size_t count, Shape shape) {
    // At an odd address, with a byte behind that must stay.
    Bytes elements(count * shape.width + 2, std::byte{0x5a});
    std::array<const std::byte*, kMaxElementWidth> planes{};
    for (unsigned k = 0; k < shape.width; ++k) {
        planes[k] = all.data() + k * count;
    }
    kernels.merge(planes, count, shape.width, shape.rotation, elements.data() + 1);
    EXPECT_EQ(elements.back(), std::byte{0x5a});
    return {elements.begin() + 1, elements.end() - 1};
}

TEST(PlaneSplit, PutsTheLowestByteFirstAndTheSignBelowIt) {
    const std::uint16_t elements[] = {0x8001, 0x3f80};
    const auto* bytes = reinterpret_cast<const std::byte*>(elements);
    const Bytes plain = split_with(portable_plane_kernels(), bytes, 2, {2, 0});
    EXPECT_EQ(plain, (Bytes{std::byte{0x01}, std::byte{0x80}, std::byte{0x80}, std::byte{0x3f}}));
    const Bytes rotated = split_with(portable_plane_kernels(), bytes, 2, {2, 1});
    EXPECT_EQ(rotated, (Bytes{std::byte{0x03}, std::byte{0x00}, std::byte{0x00}, std::byte{0x7f}}));
}

TEST(PlaneSplit, AllKernelsGiveTheSameBytes) {
    const Bytes data = testing::random_bytes(8 * 5000);
    for (const Shape shape : kShapes) {
        for (const std::size_t count : kCounts) {
            for (const std::size_t offset : {0U, 1U, 3U}) {
                const std::byte* elements = data.data() + offset;
                const Bytes portable = split_with(portable_plane_kernels(), elements, count, shape);
                EXPECT_EQ(split_with(plane_kernels(), elements, count, shape), portable);
                EXPECT_EQ(merge_with(plane_kernels(), portable, count, shape),
                          merge_with(portable_plane_kernels(), portable, count, shape));
            }
        }
    }
}

TEST(PlaneSplit, MergeUndoesSplit) {
    const Bytes data = testing::random_bytes(8 * 5000);
    for (const Shape shape : kShapes) {
        for (const std::size_t count : kCounts) {
            const Bytes planes = split_with(plane_kernels(), data.data(), count, shape);
            const Bytes expected(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count * shape.width));
            EXPECT_EQ(merge_with(plane_kernels(), planes, count, shape), expected);
        }
    }
}

}  // namespace
}  // namespace ckptfs
