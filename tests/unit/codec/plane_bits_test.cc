// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_bits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

constexpr std::size_t kCounts[] = {1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 1001};

TEST(PlaneBits, FindsTheBitsThatVary) {
    EXPECT_EQ(varying_bits(Bytes(9000, std::byte{0x5a})), 0);
    for (const std::size_t size : {std::size_t{20}, std::size_t{4097}, std::size_t{20000}}) {
        for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
            Bytes bytes(size, std::byte{0x5a});
            bytes[at] = std::byte{0x53};
            EXPECT_EQ(varying_bits(bytes), 0x09) << size << " " << at;
        }
    }
    EXPECT_EQ(varying_bits(testing::random_bytes(5000)), 0xff);
}

TEST(PlaneBits, PacksLowestBitsFirst) {
    const Bytes bytes = {std::byte{0x10}, std::byte{0x11}, std::byte{0x30}};
    Bytes packed(packed_size(3, 0x21) + 8);
    pack_bits(bytes, 0x21, packed.data());
    EXPECT_EQ(packed[0], std::byte{0b100100});
}

TEST(PlaneBits, UnpackingUndoesPackingForEveryMask) {
    const Bytes random = testing::random_bytes(2000);
    for (unsigned mask = 1; mask < 256; ++mask) {
        for (const std::size_t count : kCounts) {
            const std::byte constant = std::byte{0xa5} & ~std::byte{static_cast<unsigned char>(mask)};
            Bytes bytes(count);
            std::transform(
                random.begin(), random.begin() + static_cast<std::ptrdiff_t>(count), bytes.begin(),
                [&](std::byte byte) { return (byte & std::byte{static_cast<unsigned char>(mask)}) | constant; });
            const auto bits = static_cast<std::uint8_t>(mask);
            Bytes packed(packed_size(count, bits) + 8);
            pack_bits(bytes, bits, packed.data());
            packed.resize(packed_size(count, bits));
            packed.shrink_to_fit();
            Bytes back(count);
            unpack_bits(packed, bits, std::to_integer<std::uint8_t>(constant), back);
            ASSERT_EQ(back, bytes) << mask << " " << count;
        }
    }
}

TEST(PlaneBits, CentresAreMeansRoundedToTheStep) {
    EXPECT_EQ(centre_of(Bytes(256, std::byte{0xff}), 1), std::byte{0xff});
    EXPECT_EQ(centre_of(Bytes(256, std::byte{0xff}), 4), std::byte{0x00});
    EXPECT_EQ(centre_of(Bytes(5, std::byte{17}), 1), std::byte{17});
    EXPECT_EQ(centre_of(Bytes(5, std::byte{17}), 4), std::byte{16});
    EXPECT_EQ(centre_of(Bytes(100, std::byte{18}), 4), std::byte{20});
    Bytes mixed(16);
    std::fill(mixed.begin() + 8, mixed.end(), std::byte{100});
    EXPECT_EQ(centre_of(mixed, 1), std::byte{50});
}

TEST(PlaneBits, AddingUndoesSubtracting) {
    const Bytes bytes = testing::random_bytes(300);
    Bytes centred(300);
    subtract(bytes, std::byte{77}, centred.data());
    EXPECT_NE(centred, bytes);
    add_in_place(centred, std::byte{77});
    EXPECT_EQ(centred, bytes);
}

}  // namespace
}  // namespace ckptfs
