// SPDX-License-Identifier: Apache-2.0
// URLs: where a service listens, and percent-encoding as Amazon S3 signs it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs {

struct Url {
    // "http" or "https".
    std::string scheme;
    // In lower case; an IPv6 address in its brackets.
    std::string host;
    // Empty for the scheme's default.
    std::string port;
    // As written, without a trailing '/'.
    std::string path;

    // What the Host header says.
    [[nodiscard]] std::string authority() const { return port.empty() ? host : host + ':' + port; }
};

// Fails (EINVAL) for anything but http or https, and for users, queries and fragments; the message begins with
// `setting`, the name of the setting that `text` is from.
[[nodiscard]] Result<Url> parse_url(std::string_view text, std::string_view setting);

// Names and values as they are, before encoding.
using Query = std::vector<std::pair<std::string, std::string>>;

// All but A-Z a-z 0-9 - . _ ~ becomes %XX ("UriEncode" in "Signature calculations for the Authorization header").
[[nodiscard]] std::string uri_encode(std::string_view text);
// The same, with '/' kept: an object key as a path.
[[nodiscard]] std::string uri_encode_key(std::string_view key);
// Decodes %XX, and '+' as a blank, as some stores send it. Empty if a % is not followed by two hexadecimal digits.
[[nodiscard]] std::optional<std::string> uri_decode(std::string_view text);
// Encoded and sorted, each name with its '=': at once what is sent and what is signed.
[[nodiscard]] std::string canonical_query(const Query& query);

}  // namespace ckptfs
