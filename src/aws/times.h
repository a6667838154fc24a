// SPDX-License-Identifier: Apache-2.0
// Times as S3 writes them. Pure; independent of locale and time zone. Other texts are not parsed, nor are times before
// 1970, which some servers send for "never", or after 2261, which a WallTime cannot hold.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/clock.h"

namespace ckptfs {

// "20130524T000000Z": x-amz-date.
[[nodiscard]] std::string basic_iso8601(WallTime time);
// "2009-10-12T17:50:30Z".
[[nodiscard]] std::string extended_iso8601(WallTime time);
// "2009-10-12T17:50:30.000Z": times in XML. Fractions beyond milliseconds are dropped.
[[nodiscard]] std::optional<WallTime> parse_iso8601(std::string_view text);
// "Wed, 12 Oct 2009 17:50:00 GMT": Date and Last-Modified headers (RFC 9110, IMF-fixdate).
[[nodiscard]] std::optional<WallTime> parse_http_date(std::string_view text);

}  // namespace ckptfs
