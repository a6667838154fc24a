// SPDX-License-Identifier: Apache-2.0
// Numbers in text that comes from outside: digits only, with a minus sign if the type has one. Blanks, a plus sign or a
// prefix such as 0x are not accepted, and the locale has no effect. What does not fit the type is no number.
//
// Threads: no state.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace ckptfs {

// The number that `text` begins with, which is removed from it.
template <class Number>
[[nodiscard]] std::optional<Number> take_number(std::string_view& text, int base = 10) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc()) {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

// The number, if `text` is nothing else.
template <class Number>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text, int base = 10) {
    const std::optional<Number> value = take_number<Number>(text, base);
    return text.empty() ? value : std::nullopt;
}

}  // namespace ckptfs
