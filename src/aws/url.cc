// SPDX-License-Identifier: Apache-2.0
#include "aws/url.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

bool is_unreserved(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

std::string encode(std::string_view text, bool keep_slash) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string encoded;
    encoded.reserve(text.size() + text.size() / 4);
    for (const char c : text) {
        if (is_unreserved(c) || (keep_slash && c == '/')) {
            encoded += c;
            continue;
        }
        const auto byte = static_cast<std::uint8_t>(c);
        encoded += '%';
        encoded += kDigits[byte >> 4U];
        encoded += kDigits[byte & 0x0FU];
    }
    return encoded;
}

int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

}  // namespace

Result<Url> parse_url(std::string_view text, std::string_view setting) {
    const auto refuse = [text, setting](const char* why) {
        // The message leaves out what may be a password.
        const std::size_t at = text.rfind('@');
        return failure(EINVAL, format("{} {}: {}; it looks like https://host[:port]", setting,
                                      escaped(at == std::string_view::npos ? text : text.substr(at)), why));
    };
    const std::size_t scheme_end = text.find("://");
    if (scheme_end == std::string_view::npos) {
        return refuse("no scheme");
    }
    Url url;
    url.scheme = lower_case(text.substr(0, scheme_end));
    if (url.scheme != "http" && url.scheme != "https") {
        return refuse("neither http nor https");
    }
    std::string_view rest = text.substr(scheme_end + 3);
    if (rest.find_first_of("?#@ ") != std::string_view::npos) {
        return refuse("query, fragment or user in it");
    }
    const std::size_t path = std::min(rest.find('/'), rest.size());
    url.path = rest.substr(path);
    while (url.path.ends_with('/')) {
        url.path.pop_back();
    }
    rest = rest.substr(0, path);
    const std::size_t bracket = rest.rfind(']');
    const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
    url.host = lower_case(rest.substr(0, colon));
    if (colon != std::string_view::npos) {
        url.port = rest.substr(colon + 1);
        const bool digits = std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (url.port.empty() || url.port.size() > 5 || !digits) {
            return refuse("no port number after ':'");
        }
    }
    if (url.host.empty()) {
        return refuse("no host");
    }
    if ((url.scheme == "http" && url.port == "80") || (url.scheme == "https" && url.port == "443")) {
        url.port.clear();
    }
    return url;
}

std::string uri_encode(std::string_view text) {
    return encode(text, false);
}

std::string uri_encode_key(std::string_view key) {
    return encode(key, true);
}

std::optional<std::string> uri_decode(std::string_view text) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i] == '+' ? ' ' : text[i];
            continue;
        }
        const int high = i + 1 < text.size() ? digit_value(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? digit_value(text[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return std::nullopt;
        }
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

std::string canonical_query(const Query& query) {
    Query encoded;
    encoded.reserve(query.size());
    for (const auto& [name, value] : query) {
        encoded.emplace_back(uri_encode(name), uri_encode(value));
    }
    std::sort(encoded.begin(), encoded.end());
    std::string text;
    for (const auto& [name, value] : encoded) {
        if (!text.empty()) {
            text += '&';
        }
        text += name;
        text += '=';
        text += value;
    }
    return text;
}

}  // namespace ckptfs
