// SPDX-License-Identifier: Apache-2.0
#include "uri.h"

namespace ckptfs::s3sim {
namespace {

bool is_letter_or_digit(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

std::optional<unsigned> hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return static_cast<unsigned>(c - '0');
    }
    if (c >= 'a' && c <= 'f') {
        return static_cast<unsigned>(c - 'a') + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return static_cast<unsigned>(c - 'A') + 10;
    }
    return std::nullopt;
}

void append_escaped(std::string& text, char c) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto value = static_cast<unsigned char>(c);
    text.push_back('%');
    text.push_back(kDigits[value >> 4U]);
    text.push_back(kDigits[value & 0xFU]);
}

std::string encode(std::string_view text, std::string_view also_kept) {
    std::string encoded;
    encoded.reserve(text.size());
    for (const char c : text) {
        if (is_letter_or_digit(c) || also_kept.find(c) != std::string_view::npos) {
            encoded.push_back(c);
        } else {
            append_escaped(encoded, c);
        }
    }
    return encoded;
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view text) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '+') {
            decoded.push_back(' ');
        } else if (text[i] != '%') {
            decoded.push_back(text[i]);
        } else {
            const auto high = i + 2 < text.size() ? hex_value(text[i + 1]) : std::nullopt;
            const auto low = i + 2 < text.size() ? hex_value(text[i + 2]) : std::nullopt;
            if (!high || !low) {
                return std::nullopt;
            }
            decoded.push_back(static_cast<char>(*high * 16 + *low));
            i += 2;
        }
    }
    return decoded;
}

std::string percent_encode(std::string_view text, bool keep_slash) {
    return encode(text, keep_slash ? "-._~/" : "-._~");
}

std::string encode_listed_key(std::string_view key) {
    std::string encoded = encode(key, "-._*/ ");
    for (char& c : encoded) {
        if (c == ' ') {
            c = '+';
        }
    }
    return encoded;
}

std::optional<std::vector<NameValue>> parse_query(std::string_view query) {
    std::vector<NameValue> parameters;
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(pair.size() + 1, query.size()));
        if (pair.empty()) {
            continue;
        }
        const std::size_t equals = pair.find('=');
        auto name = percent_decode(pair.substr(0, equals));
        auto value = percent_decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1));
        if (!name || !value) {
            return std::nullopt;
        }
        parameters.emplace_back(std::move(*name), std::move(*value));
    }
    return parameters;
}

}  // namespace ckptfs::s3sim
