// SPDX-License-Identifier: Apache-2.0
// Which server a bucket's requests go to, and how they name it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "aws/profile_file.h"
#include "aws/url.h"
#include "base/environment.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"

namespace ckptfs::s3 {

// An S3 access point, which can be given in place of a bucket's name ("Referencing access points with ARNs, access
// point aliases, or virtual-hosted-style URIs", Amazon S3 User Guide).
struct AccessPoint {
    std::string partition;
    std::string region;
    std::string account;
    std::string name;

    friend bool operator==(const AccessPoint&, const AccessPoint&) = default;
    // "name-123456789012": stands in the host name where a bucket's name would.
    [[nodiscard]] std::string host_label() const { return name + '-' + account; }
};

// arn:PARTITION:s3:REGION:ACCOUNT:accesspoint/NAME, with ':' before the name as well; empty for other texts.
[[nodiscard]] std::optional<AccessPoint> parse_access_point(std::string_view arn);

struct Endpoint {
    // "http" or "https".
    std::string scheme;
    // What the Host header says: host, and port unless it is the scheme's own. The bucket is in it for virtual-host
    // style.
    std::string authority;
    // Percent-encoded, without a trailing '/': the endpoint's own path, and the bucket for path style.
    std::string base_path;
    std::string region;
    // Every request says that the requester pays.
    bool requester_pays = false;
    // Tells stores apart, however a bucket is named: host, port and path, without the bucket. All of Amazon's hosts are
    // one store, "amazonaws.com"; those in China are another.
    std::string server{};

    [[nodiscard]] bool uses_tls() const { return scheme == "https"; }
    // As sent and signed. An empty key names the bucket.
    [[nodiscard]] std::string path(std::string_view key) const;
    [[nodiscard]] std::string url(std::string_view key, const Query& query) const;
};

// Endpoint: --endpoint-url, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, else Amazon's for the
// region.
//
// Style kAuto: virtual-host for Amazon's own hosts if the bucket's name can be part of a host name under a wildcard
// certificate (no dots), path style for every other endpoint, which is what MinIO, Ceph, addresses and localhost need.
//
// A bucket that is the ARN of an access point is addressed by virtual host, in the ARN's region.
[[nodiscard]] Result<Endpoint> resolve_endpoint(const StoreConfig& config, const Environment& environment,
                                                const Profile& profile);

}  // namespace ckptfs::s3
