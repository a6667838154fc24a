// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace ckptfs {
namespace {

std::string encoded(std::uint32_t point) {
    const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
    if (point < 0x80) {
        return {static_cast<char>(point)};
    }
    if (point < 0x800) {
        return {static_cast<char>(0xC0 | (point >> 6)), tail(0)};
    }
    if (point < 0x10000) {
        return {static_cast<char>(0xE0 | (point >> 12)), tail(6), tail(0)};
    }
    return {static_cast<char>(0xF0 | (point >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Utf8, EveryCodePointButSurrogates) {
    for (std::uint32_t point = 0; point <= 0x10FFFF; ++point) {
        const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
        ASSERT_EQ(is_utf8("a" + encoded(point) + "z"), !surrogate) << point;
        const auto first = first_code_point(encoded(point) + "z");
        ASSERT_EQ(first.has_value(), !surrogate) << point;
        if (first) {
            ASSERT_EQ(first->value, point);
            ASSERT_EQ(first->size, encoded(point).size());
        }
    }
    EXPECT_FALSE(is_utf8(encoded(0x110000)));
}

TEST(Utf8, WhatIsCutOffOrOverlong) {
    EXPECT_TRUE(is_utf8(""));
    for (const char* bad : {"\x80", "\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xc3",
                            "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "caf\xe9", "\xf8\x88\x80\x80\x80"}) {
        EXPECT_FALSE(is_utf8(bad)) << bad;
    }
}

TEST(Utf8, ReadsOnlyTheFirstCodePoint) {
    EXPECT_FALSE(first_code_point(""));
    EXPECT_FALSE(first_code_point("\xc3(z"));
    EXPECT_EQ(first_code_point("z\xff")->value, U'z');
}

TEST(Utf8, ControlsAreThoseOfUnicode) {
    for (const char32_t point : {0x00U, 0x1FU, 0x7FU, 0x80U, 0x9FU}) {
        EXPECT_TRUE(is_control(point)) << static_cast<std::uint32_t>(point);
    }
    for (const char32_t point : {0x20U, 0x7EU, 0xA0U, 0x2028U}) {
        EXPECT_FALSE(is_control(point)) << static_cast<std::uint32_t>(point);
    }
}

}  // namespace
}  // namespace ckptfs
