// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ckptfs/bytes.h"

namespace ckptfs {
namespace {

struct Rounded {
    std::uint32_t bits;
    std::uint16_t bf16;
};

TEST(Bf16, RoundsToNearestAndTiesToEven) {
    const Rounded known[] = {
        {0x3f800000, 0x3f80},                        // 1
        {0x3f808000, 0x3f80},                        // a tie, down
        {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},  // a tie, up
        {0x3f80ffff, 0x3f81}, {0x3f807fff, 0x3f80}, {0xbf808001, 0xbf81},
        {0x7f7fffff, 0x7f80},                        // the largest number, to infinity
        {0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0},  // NaNs
        {0xffffffff, 0x7fc0}, {0x00000001, 0x0000}, {0x80000000, 0x8000},
    };
    for (const auto& [bits, bf16] : known) {
        std::uint16_t rounded = 0;
        round_to_bf16(reinterpret_cast<const std::byte*>(&bits), 1, &rounded);
        EXPECT_EQ(rounded, bf16) << std::hex << bits;
    }
}

// Floats of all kinds, and those around ties.
std::vector<std::uint32_t> all_kinds(std::size_t count) {
    std::mt19937 random(1);
    std::vector<std::uint32_t> floats(count);
    for (std::size_t i = 0; i < count; ++i) {
        floats[i] = static_cast<std::uint32_t>(random());
        if (i % 64 < 4) {
            floats[i] = (floats[i] & 0xffff0000) | (0x7ffe + static_cast<std::uint32_t>(i % 64));
        } else if (i % 64 == 4) {
            floats[i] |= 0x7f800000;
        }
    }
    return floats;
}

TEST(Bf16, FloatsComeBackFromTheirLowerHalvesAndExceptions) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{255}, std::size_t{100'003}}) {
        const std::vector<std::uint32_t> floats = all_kinds(count);
        // At an odd address.
        std::vector<std::byte> raw(4 * count + 1);
        std::memcpy(raw.data() + 1, floats.data(), 4 * count);
        std::vector<std::uint16_t> rounded(count);
        round_to_bf16(raw.data() + 1, count, rounded.data());
        std::vector<RoundingException> exceptions;
        ASSERT_TRUE(find_exceptions(raw.data() + 1, rounded.data(), count, count, exceptions));
        EXPECT_LT(exceptions.size(), count / 16 + 3);

        std::vector<std::byte> low(count);
        std::vector<std::byte> high(count);
        for (std::size_t i = 0; i < count; ++i) {
            low[i] = static_cast<std::byte>(floats[i]);
            high[i] = static_cast<std::byte>(floats[i] >> 8);
        }
        std::vector<std::byte> bf16(2 * count + 1);
        std::memcpy(bf16.data() + 1, rounded.data(), 2 * count);
        std::vector<std::byte> back(4 * count + 1);
        restore_floats(low.data(), high.data(), bf16.data() + 1, count, back.data() + 1);
        for (const auto& [index, upper_half] : exceptions) {
            std::memcpy(back.data() + 1 + 4 * index + 2, &upper_half, 2);
        }
        EXPECT_TRUE(back == raw) << count;
    }
}

TEST(Bf16, TooManyExceptionsAreToldOf) {
    const std::vector<std::uint32_t> ties(10'000, 0x3f818000);
    std::vector<std::uint16_t> rounded(ties.size());
    const auto* const floats = reinterpret_cast<const std::byte*>(ties.data());
    round_to_bf16(floats, ties.size(), rounded.data());
    std::vector<RoundingException> exceptions;
    EXPECT_FALSE(find_exceptions(floats, rounded.data(), ties.size(), 100, exceptions));
    EXPECT_LT(exceptions.size(), 1000U);
}

}  // namespace
}  // namespace ckptfs
