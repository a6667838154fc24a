// SPDX-License-Identifier: Apache-2.0
// Whatever a store answers in its headers, one "name: value" a line; and the texts that stand in them.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "aws/times.h"
#include "aws/url.h"
#include "require.h"
#include "s3/responses.h"

namespace ckptfs {
namespace {

constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

HttpResponse response_of(std::string_view text) {
    HttpResponse response;
    response.status = 200;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const std::size_t colon = line.find(": ");
        if (colon != std::string_view::npos) {
            response.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
        }
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return response;
}

void check_value(std::string_view value) {
    if (const auto range = s3::parse_content_range(value)) {
        CKPTFS_REQUIRE(range->first <= range->last && range->last < range->total && range->total <= kMaxOffset);
    }
    const std::string etag = s3::quoted_etag(std::string(value));
    CKPTFS_REQUIRE(s3::quoted_etag(etag) == etag);
    static_cast<void>(parse_http_date(value));
    if (const auto time = parse_iso8601(value)) {
        static_cast<void>(basic_iso8601(*time));
    }
    CKPTFS_REQUIRE(uri_decode(uri_encode(value)) == std::string(value));
    static_cast<void>(uri_decode(value));
}

void check(std::string_view text) {
    const HttpResponse response = response_of(text);
    if (const auto object = s3::object_info("key", response)) {
        CKPTFS_REQUIRE(object->size <= kMaxOffset);
        CKPTFS_REQUIRE(object->metadata.size() <= response.headers.size());
    }
    for (const auto& [name, value] : response.headers) {
        check_value(value);
    }
    check_value(text);
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    ckptfs::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
