// SPDX-License-Identifier: Apache-2.0
#include "http_message.h"

#include <algorithm>
#include <charconv>

namespace ckptfs::s3sim {
namespace {

bool equal_without_case(std::string_view a, std::string_view b) {
    return lower_case(a) == lower_case(b);
}

bool is_token(std::string_view text) {
    constexpr std::string_view kSeparators = "()<>@,;:\\\"/[]?={} \t";
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
        return c > 0x20 && c < 0x7F && kSeparators.find(c) == std::string_view::npos;
    });
}

std::optional<std::string> parse_request_line(std::string_view line, HttpRequest& request) {
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last) {
        return "the request line is not METHOD TARGET VERSION";
    }
    const std::string_view version = line.substr(last + 1);
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
        return "the version is not HTTP/1.1";
    }
    std::string_view target = line.substr(first + 1, last - first - 1);
    // The absolute form is what a client sends to a proxy.
    if (target.starts_with("http://") || target.starts_with("https://")) {
        const std::size_t path = target.find('/', target.find("//") + 2);
        target = path == std::string_view::npos ? "/" : target.substr(path);
    }
    if (!target.starts_with('/') || target.find(' ') != std::string_view::npos || !is_token(line.substr(0, first))) {
        return "the request target is not a path";
    }
    const std::size_t question = target.find('?');
    request.method = line.substr(0, first);
    request.path = target.substr(0, question);
    request.query = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
    request.http_1_0 = version == "HTTP/1.0";
    return std::nullopt;
}

bool parse_header_line(std::string_view line, HttpRequest& request) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
        return false;
    }
    request.headers.emplace_back(lower_case(line.substr(0, colon)), std::string(trim(line.substr(colon + 1))));
    return true;
}

}  // namespace

std::optional<std::string_view> HttpRequest::header(std::string_view lower_case_name) const {
    for (const auto& [name, value] : headers) {
        if (name == lower_case_name) {
            return value;
        }
    }
    return std::nullopt;
}

std::string_view HttpRequest::header_or(std::string_view lower_case_name, std::string_view otherwise) const {
    return header(lower_case_name).value_or(otherwise);
}

bool HttpRequest::keep_alive() const {
    const std::string_view connection = header_or("connection", "");
    return http_1_0 ? equal_without_case(connection, "keep-alive") : !equal_without_case(connection, "close");
}

bool HttpRequest::expects_continue() const {
    return equal_without_case(header_or("expect", ""), "100-continue");
}

bool HttpRequest::chunked() const {
    return equal_without_case(header_or("transfer-encoding", ""), "chunked");
}

std::variant<HeadIncomplete, HeadMalformed, HeadParsed> parse_head(std::string_view received) {
    if (!received.empty() && !is_token(received.substr(0, 1))) {
        // Of TLS, for one: its greeting has no blank line to wait for.
        return HeadMalformed{"this is not HTTP"};
    }
    const std::size_t end = received.substr(0, kLargestHead).find("\r\n\r\n");
    if (end == std::string_view::npos) {
        if (received.size() >= kLargestHead) {
            return HeadMalformed{"the header section is too large"};
        }
        return HeadIncomplete{};
    }
    std::string_view lines = received.substr(0, end + 2);
    HeadParsed parsed;
    parsed.size = end + 4;
    bool first = true;
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find("\r\n"));
        lines.remove_prefix(line.size() + 2);
        if (first) {
            if (auto problem = parse_request_line(line, parsed.request)) {
                return HeadMalformed{std::move(*problem)};
            }
            first = false;
        } else if (!parse_header_line(line, parsed.request)) {
            return HeadMalformed{"a header line is not NAME: VALUE"};
        }
    }
    return parsed;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return lower;
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) {
        return {};
    }
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string_view reason_phrase(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 204:
            return "No Content";
        case 206:
            return "Partial Content";
        case 301:
            return "Moved Permanently";
        case 304:
            return "Not Modified";
        case 400:
            return "Bad Request";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 409:
            return "Conflict";
        case 411:
            return "Length Required";
        case 412:
            return "Precondition Failed";
        case 416:
            return "Requested Range Not Satisfiable";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        default:
            return "Status";
    }
}

}  // namespace ckptfs::s3sim
