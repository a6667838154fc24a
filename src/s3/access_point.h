// SPDX-License-Identifier: Apache-2.0
// Access points, which stand where a bucket's name does. Pure.
//
// Source: "Referencing access points with ARNs, access point aliases, or virtual-hosted-style URIs", Amazon S3 User
// Guide.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

struct AccessPoint {
    std::string partition;
    std::string region;
    std::string account;
    std::string name;

    friend bool operator==(const AccessPoint&, const AccessPoint&) = default;
    // "name-123456789012": what stands before the dot where a bucket's name would.
    [[nodiscard]] std::string host_label() const { return name + '-' + account; }
};

// arn:PARTITION:s3:REGION:ACCOUNT:accesspoint/NAME, with ':' before the name as well; nothing for other texts.
[[nodiscard]] std::optional<AccessPoint> parse_access_point(std::string_view arn);

}  // namespace ckptfs
