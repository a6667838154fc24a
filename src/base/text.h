// SPDX-License-Identifier: Apache-2.0
// Text made from values, and the case and blanks of ASCII text: names of headers, hosts and settings. The one place
// that names the formatting library. Pure; no locale.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs {

// Placeholders are checked by the compiler, as in std::format of newer libraries.
template <class... Arguments>
[[nodiscard]] std::string format(fmt::format_string<Arguments...> pattern, Arguments&&... arguments) {
    return fmt::format(pattern, std::forward<Arguments>(arguments)...);
}

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

// "1.5"
[[nodiscard]] inline std::string mebibytes(std::uint64_t bytes) {
    return format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kMebibyte));
}

// "1 file", "2 files"
[[nodiscard]] inline std::string counted(std::uint64_t count, std::string_view what) {
    return format("{} {}{}", count, what, count == 1 ? "" : "s");
}

[[nodiscard]] inline std::string lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) {
        if (c >= 'A' && c <= 'Z') {
            c = static_cast<char>(c - 'A' + 'a');
        }
    }
    return lower;
}

[[nodiscard]] inline bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The text without the blanks at its ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_blank(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

}  // namespace ckptfs
