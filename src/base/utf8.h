// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. What other bytes mean is up to
// the caller: a name is refused, a line of the log shows them. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ckptfs {

struct CodePoint {
    char32_t value = 0;
    // Bytes that it takes in UTF-8.
    std::size_t size = 0;
};

// Empty for an empty text, and for one that does not begin with UTF-8.
[[nodiscard]] std::optional<CodePoint> first_code_point(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

// C0, DEL and C1: Unicode's general category Cc.
[[nodiscard]] constexpr bool is_control(char32_t point) {
    return point < 0x20 || (point >= 0x7F && point < 0xA0);
}

}  // namespace ckptfs
