// SPDX-License-Identifier: Apache-2.0
#include "s3/access_point.h"

#include <algorithm>
#include <utility>

namespace ckptfs {
namespace {

// Cut off the front of `text`, up to the separator; nothing where there is none.
std::optional<std::string> take_field(std::string_view& text) {
    const std::size_t end = text.find(':');
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    std::string field(text.substr(0, end));
    text.remove_prefix(end + 1);
    return field;
}

// All of it becomes part of a host name.
bool fits_in_host_name(std::string_view text) {
    return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

}  // namespace

std::optional<AccessPoint> parse_access_point(std::string_view arn) {
    constexpr std::string_view kResource = "accesspoint";
    const auto prefix = take_field(arn);
    auto partition = take_field(arn);
    const auto service = take_field(arn);
    auto region = take_field(arn);
    auto account = take_field(arn);
    if (prefix != "arn" || service != "s3" || !account || !arn.starts_with(kResource)) {
        return std::nullopt;
    }
    arn.remove_prefix(kResource.size());
    if (!arn.starts_with('/') && !arn.starts_with(':')) {
        return std::nullopt;
    }
    AccessPoint point{std::move(*partition), std::move(*region), std::move(*account), std::string(arn.substr(1))};
    const bool valid = fits_in_host_name(point.partition) && fits_in_host_name(point.region) &&
                       fits_in_host_name(point.account) && fits_in_host_name(point.name);
    return valid ? std::optional(std::move(point)) : std::nullopt;
}

}  // namespace ckptfs
