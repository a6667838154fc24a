// SPDX-License-Identifier: Apache-2.0
// Case and blanks of ASCII text: names of headers, hosts and settings. Pure; no locale.
#pragma once

#include <string>
#include <string_view>

namespace ckptfs {

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

// Without the blanks at its ends.
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
