// SPDX-License-Identifier: Apache-2.0
#pragma once

// Wall-clock times in the forms that HTTP, S3 and SigV4 write them in. Pure.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace ckptfs::s3sim {

using SystemTime = std::chrono::system_clock::time_point;

std::string http_date(SystemTime time);  // Sun, 06 Nov 1994 08:49:37 GMT
std::string iso_date(SystemTime time);   // 1994-11-06T08:49:37.000Z
std::string amz_date(SystemTime time);   // 19941106T084937Z
std::optional<SystemTime> parse_amz_date(std::string_view text);
std::optional<SystemTime> parse_http_date(std::string_view text);

}  // namespace ckptfs::s3sim
