// SPDX-License-Identifier: Apache-2.0
// What a response's headers say. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/object_store.h"

namespace ckptfs::s3 {

struct ContentRange {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t total = 0;
};

// "bytes 0-9/443"; empty for another form, an unknown total, or an end beyond it.
[[nodiscard]] std::optional<ContentRange> parse_content_range(std::string_view text);
// Adds the quotes that belong to an ETag (RFC 9110, 8.8.3) and that some servers leave out of XML, so that the ETag of
// one version is the same text wherever it was read.
[[nodiscard]] std::string quoted_etag(std::string etag);
[[nodiscard]] std::optional<std::uint64_t> content_length(const HttpResponse& response);
// Size from Content-Range, else from Content-Length; empty if neither is there.
[[nodiscard]] std::optional<ObjectInfo> object_info(const std::string& key, const HttpResponse& response);

// Retry-After of a 503 or 429, in seconds or as a date, which is compared with the reply's own Date; 0 for any other
// reply, and if it is absent.
[[nodiscard]] Milliseconds retry_after(const HttpResponse& response);

}  // namespace ckptfs::s3
