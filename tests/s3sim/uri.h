// SPDX-License-Identifier: Apache-2.0
#pragma once

// Percent-encoding and query strings as S3 reads them. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "outcome.h"

namespace ckptfs::s3sim {

// "+" is a space, in paths too, as S3 has it. Nothing if an escape is broken.
std::optional<std::string> percent_decode(std::string_view text);

// RFC 3986: only letters, digits and "-._~" stay; "/" stays where keep_slash is set.
std::string percent_encode(std::string_view text, bool keep_slash);

// What encoding-type=url makes of a key in a listing: spaces are "+", "*" and "/" stay, "~" does not.
std::string encode_listed_key(std::string_view key);

// Decoded names and values in the order given; an absent "=" is an empty value. Nothing if an escape is broken.
std::optional<std::vector<NameValue>> parse_query(std::string_view query);

}  // namespace ckptfs::s3sim
