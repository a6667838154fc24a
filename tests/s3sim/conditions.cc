// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"

#include <algorithm>

namespace ckptfs::s3sim {
namespace {

bool matches_any(std::string_view list, std::string_view etag) {
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(','));
        list.remove_prefix(std::min(item.size() + 1, list.size()));
        const std::string_view trimmed = trim(item);
        if (trimmed == "*" || unquote_etag(trimmed) == etag) {
            return true;
        }
    }
    return false;
}

std::optional<SystemTime> date_header(const HttpRequest& request, const std::string& name) {
    const auto value = request.header(name);
    return value ? parse_http_date(*value) : std::nullopt;
}

tl::unexpected<S3Error> precondition_failed(std::string_view condition) {
    S3Error error = s3_error("PreconditionFailed");
    error.details.emplace_back("Condition", condition);
    return tl::unexpected(std::move(error));
}

tl::unexpected<S3Error> invalid_range(std::string_view header, std::uint64_t size) {
    S3Error error = s3_error("InvalidRange");
    error.details.emplace_back("RangeRequested", header);
    error.details.emplace_back("ActualObjectSize", std::to_string(size));
    error.headers.emplace_back("Content-Range", "bytes */" + std::to_string(size));
    return tl::unexpected(std::move(error));
}

}  // namespace

std::string unquote_etag(std::string_view etag) {
    if (etag.starts_with("W/")) {
        etag.remove_prefix(2);
    }
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
        etag = etag.substr(1, etag.size() - 2);
    }
    return std::string(etag);
}

Outcome<WriteCondition> read_write_condition(const HttpRequest& request) {
    WriteCondition condition;
    if (const auto value = request.header("if-none-match")) {
        if (*value != "*") {
            return fail("NotImplemented", "If-None-Match on writes supports only *.");
        }
        condition.if_none_match_any = true;
    }
    if (const auto value = request.header("if-match")) {
        condition.if_match = unquote_etag(*value);
    }
    return condition;
}

Outcome<void> check_write_condition(const WriteCondition& condition, const std::optional<std::string>& current) {
    if (condition.if_none_match_any && current) {
        return precondition_failed("If-None-Match");
    }
    if (condition.if_match && !current) {
        return fail("NoSuchKey");
    }
    if (condition.if_match && *condition.if_match != "*" && *condition.if_match != *current) {
        return precondition_failed("If-Match");
    }
    return {};
}

Outcome<void> check_read_conditions(const HttpRequest& request, std::string_view header_prefix, std::string_view etag,
                                    SystemTime last_modified) {
    const std::string prefix(header_prefix);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(last_modified);
    const bool is_copy = !prefix.empty();
    if (const auto value = request.header(prefix + "if-match")) {
        if (!matches_any(*value, etag)) {
            return precondition_failed(prefix + "If-Match");
        }
    } else if (const auto date = date_header(request, prefix + "if-unmodified-since"); date && seconds > *date) {
        return precondition_failed(prefix + "If-Unmodified-Since");
    }
    if (const auto value = request.header(prefix + "if-none-match")) {
        if (matches_any(*value, etag)) {
            return is_copy ? precondition_failed(prefix + "If-None-Match") : fail("NotModified");
        }
    } else if (const auto date = date_header(request, prefix + "if-modified-since"); date && seconds <= *date) {
        return is_copy ? precondition_failed(prefix + "If-Modified-Since") : fail("NotModified");
    }
    return {};
}

Outcome<std::optional<ByteRange>> resolve_range(std::string_view header, std::uint64_t size) {
    if (!header.starts_with("bytes=")) {
        return std::nullopt;
    }
    const std::string_view spec = trim(header.substr(6));
    const std::size_t dash = spec.find('-');
    if (dash == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view first_text = trim(spec.substr(0, dash));
    const std::string_view last_text = trim(spec.substr(dash + 1));
    const auto first = parse_number(first_text);
    const auto last = parse_number(last_text);
    if ((!first && !first_text.empty()) || (!last && !last_text.empty()) || (!first && !last)) {
        return std::nullopt;
    }
    if (!first) {
        if (*last == 0 || size == 0) {
            return invalid_range(header, size);
        }
        const std::uint64_t length = std::min(*last, size);
        return ByteRange{size - length, length};
    }
    if (last && *last < *first) {
        return std::nullopt;
    }
    if (*first >= size) {
        return invalid_range(header, size);
    }
    return ByteRange{*first, std::min(last.value_or(size - 1), size - 1) - *first + 1};
}

Outcome<ByteRange> resolve_copy_range(std::string_view header, std::uint64_t size) {
    const std::size_t dash = header.find('-');
    const auto first = header.starts_with("bytes=") && dash != std::string_view::npos
                           ? parse_number(header.substr(6, dash - 6))
                           : std::nullopt;
    const auto last = first ? parse_number(header.substr(dash + 1)) : std::nullopt;
    if (!last || *last < *first) {
        return fail("InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last.");
    }
    if (*last >= size) {
        return fail("InvalidArgument",
                    "Range specified is not valid for source object of size: " + std::to_string(size));
    }
    return ByteRange{*first, *last - *first + 1};
}

}  // namespace ckptfs::s3sim
