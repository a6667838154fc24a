// SPDX-License-Identifier: Apache-2.0
#pragma once

// HTTP/1.1 requests: the head as parsed, and the parser. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "outcome.h"

namespace ckptfs::s3sim {

// S3 refuses a header section above 8 KiB; the room here is larger so that the refusal can be a proper reply.
inline constexpr std::size_t kLargestHead = std::size_t{64} * 1024;

struct HttpRequest {
    std::string method;
    std::string path;   // as sent, still escaped
    std::string query;  // as sent, without "?"
    bool http_1_0 = false;
    std::vector<NameValue> headers;  // names in lower case, values trimmed

    std::optional<std::string_view> header(std::string_view lower_case_name) const;
    std::string_view header_or(std::string_view lower_case_name, std::string_view otherwise) const;
    bool keep_alive() const;
    bool expects_continue() const;
    bool chunked() const;
};

struct HeadIncomplete {};
struct HeadMalformed {
    std::string reason;
};
struct HeadParsed {
    HttpRequest request;
    std::size_t size = 0;  // bytes that the head took, its blank line included
};

std::variant<HeadIncomplete, HeadMalformed, HeadParsed> parse_head(std::string_view received);

// A whole decimal number that fits; nothing otherwise.
std::optional<std::uint64_t> parse_number(std::string_view text);

std::string lower_case(std::string_view text);
std::string_view trim(std::string_view text);
std::string_view reason_phrase(int status);

}  // namespace ckptfs::s3sim
