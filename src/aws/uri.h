// SPDX-License-Identifier: Apache-2.0
// Percent-encoding as Amazon S3 signs it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs {

// Names and values as they are, before encoding.
using Query = std::vector<std::pair<std::string, std::string>>;

// All but A-Z a-z 0-9 - . _ ~ becomes %XX ("UriEncode" in "Signature calculations for the Authorization header").
[[nodiscard]] std::string uri_encode(std::string_view text);
// The same, with '/' kept: an object key as a path.
[[nodiscard]] std::string uri_encode_key(std::string_view key);
// Empty where a % is not followed by two hexadecimal digits. Some stores send blanks as '+'.
[[nodiscard]] std::optional<std::string> uri_decode(std::string_view text);
// Encoded and sorted, each name with its '=': at once what is sent and what is signed.
[[nodiscard]] std::string canonical_query(const Query& query);

}  // namespace ckptfs
