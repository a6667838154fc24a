// SPDX-License-Identifier: Apache-2.0
#include "s3/responses.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "aws/times.h"
#include "base/numbers.h"

namespace ckptfs::s3 {
namespace {

// System-defined object metadata that users can change ("Working with object metadata" in the Amazon S3 user guide),
// less what ObjectInfo has a field for.
constexpr std::array kOtherHeaders{"cache-control", "content-disposition", "content-language", "expires",
                                   "x-amz-website-redirect-location"};

constexpr std::uint64_t kLongestWaitSeconds = 1'000'000;

std::optional<std::uint64_t> parse_offset(std::string_view text) {
    constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const auto value = whole_number<std::uint64_t>(text);
    return value && *value <= kMaxOffset ? value : std::nullopt;
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
    constexpr std::string_view kUnit = "bytes ";
    const std::size_t dash = text.find('-');
    const std::size_t slash = text.find('/');
    if (!text.starts_with(kUnit) || dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) {
        return std::nullopt;
    }
    const auto first = parse_offset(text.substr(kUnit.size(), dash - kUnit.size()));
    const auto last = parse_offset(text.substr(dash + 1, slash - dash - 1));
    const auto total = parse_offset(text.substr(slash + 1));
    if (!first || !last || !total || *first > *last || *last >= *total) {
        return std::nullopt;
    }
    return ContentRange{*first, *last, *total};
}

std::string quoted_etag(std::string etag) {
    return etag.empty() || etag.ends_with('"') ? etag : '"' + etag + '"';
}

std::optional<std::uint64_t> content_length(const HttpResponse& response) {
    return parse_offset(response.header("content-length"));
}

std::optional<ObjectInfo> object_info(const std::string& key, const HttpResponse& response) {
    const std::string_view range = response.header("content-range");
    std::optional<std::uint64_t> size;
    if (range.empty()) {
        size = content_length(response);
    } else if (const auto parsed = parse_content_range(range)) {
        size = parsed->total;
    }
    if (!size) {
        return std::nullopt;
    }
    ObjectInfo object;
    object.key = key;
    object.size = *size;
    object.etag = quoted_etag(std::string(response.header("etag")));
    object.last_modified = parse_http_date(response.header("last-modified")).value_or(WallTime{});
    object.content_type = response.header("content-type");
    object.content_encoding = response.header("content-encoding");
    object.storage_class = response.header("x-amz-storage-class");
    for (const char* name : kOtherHeaders) {
        if (const std::string_view value = response.header(name); !value.empty()) {
            object.other_headers.emplace(name, value);
        }
    }
    constexpr std::string_view kMetadataPrefix = "x-amz-meta-";
    for (const auto& [name, value] : response.headers) {
        if (name.starts_with(kMetadataPrefix)) {
            object.metadata.emplace(name.substr(kMetadataPrefix.size()), value);
        }
    }
    return object;
}

Milliseconds retry_after(const HttpResponse& response) {
    if (response.status != 503 && response.status != 429) {
        return Milliseconds(0);
    }
    const std::string_view value = response.header("retry-after");
    if (const auto seconds = parse_offset(value)) {
        // Not a limit of its own, but a value that can be added to.
        return std::chrono::seconds(std::min<std::uint64_t>(*seconds, kLongestWaitSeconds));
    }
    const auto until = parse_http_date(value);
    const auto now = parse_http_date(response.header("date"));
    return until && now ? std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(*until - *now))
                        : Milliseconds(0);
}

}  // namespace ckptfs::s3
