// SPDX-License-Identifier: Apache-2.0
#include "times.h"

#include <array>
#include <ctime>

namespace ckptfs::s3sim {
namespace {

std::string format(SystemTime time, const char* pattern) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm broken_down{};
    gmtime_r(&seconds, &broken_down);
    std::array<char, 64> text{};
    return {text.data(), std::strftime(text.data(), text.size(), pattern, &broken_down)};
}

std::optional<SystemTime> parse(std::string_view text, const char* pattern) {
    const std::string terminated(text);
    std::tm broken_down{};
    const char* end = strptime(terminated.c_str(), pattern, &broken_down);
    if (end == nullptr || *end != '\0') {
        return std::nullopt;
    }
    return std::chrono::system_clock::from_time_t(timegm(&broken_down));
}

}  // namespace

std::string http_date(SystemTime time) {
    return format(time, "%a, %d %b %Y %H:%M:%S GMT");
}

std::string iso_date(SystemTime time) {
    return format(time, "%Y-%m-%dT%H:%M:%S.000Z");
}

std::string amz_date(SystemTime time) {
    return format(time, "%Y%m%dT%H%M%SZ");
}

std::optional<SystemTime> parse_amz_date(std::string_view text) {
    return parse(text, "%Y%m%dT%H%M%SZ");
}

std::optional<SystemTime> parse_http_date(std::string_view text) {
    return parse(text, "%a, %d %b %Y %H:%M:%S GMT");
}

}  // namespace ckptfs::s3sim
