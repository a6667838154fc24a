// SPDX-License-Identifier: Apache-2.0
#pragma once

// Conditional requests and byte ranges as S3 judges them. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http_message.h"
#include "outcome.h"
#include "times.h"

namespace ckptfs::s3sim {

std::string unquote_etag(std::string_view etag);

// What a write demands of the object that it replaces.
struct WriteCondition {
    bool if_none_match_any = false;
    std::optional<std::string> if_match;  // without quotes
};

// S3 takes only "*" for If-None-Match on writes.
Outcome<WriteCondition> read_write_condition(const HttpRequest& request);
// `current` is the ETag under the key, if any.
Outcome<void> check_write_condition(const WriteCondition& condition, const std::optional<std::string>& current);

// Header names for a read ("if-match", ...) or, with the prefix "x-amz-copy-source-", for the source of a copy.
Outcome<void> check_read_conditions(const HttpRequest& request, std::string_view header_prefix, std::string_view etag,
                                    SystemTime last_modified);

struct ByteRange {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

// Nothing where the header is to be ignored: malformed, several ranges, or an end before the start.
Outcome<std::optional<ByteRange>> resolve_range(std::string_view header, std::uint64_t size);
// x-amz-copy-source-range: "bytes=first-last" and nothing else, within the source.
Outcome<ByteRange> resolve_copy_range(std::string_view header, std::uint64_t size);

}  // namespace ckptfs::s3sim
