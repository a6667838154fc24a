// SPDX-License-Identifier: Apache-2.0
#include "s3/endpoint.h"

#include <algorithm>
#include <utility>

#include "aws/url.h"
#include "base/text.h"

namespace ckptfs::s3 {
namespace {

// The domain of the AWS partition to which the host belongs; empty for other hosts.
std::string_view amazon_domain(std::string_view host) {
    for (const std::string_view domain : {"amazonaws.com", "amazonaws.com.cn"}) {
        if (host.ends_with(domain) && host.substr(0, host.size() - domain.size()).ends_with('.')) {
            return domain;
        }
    }
    return {};
}

// Removes and returns the front of `text` up to the separator; empty if there is none.
std::optional<std::string> take_field(std::string_view& text) {
    const std::size_t end = text.find(':');
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    std::string field(text.substr(0, end));
    text.remove_prefix(end + 1);
    return field;
}

// Whether the text can be one label of a host name.
bool fits_in_host_name(std::string_view text) {
    return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

// "Bucket naming rules", without dots: one would not match the wildcard of Amazon's certificate.
bool bucket_fits_in_host_name(std::string_view bucket) {
    return fits_in_host_name(bucket) && bucket.size() >= 3 && !bucket.starts_with('-') && !bucket.ends_with('-');
}

bool uses_virtual_host(const StoreConfig& config, std::string_view host) {
    switch (config.addressing) {
        case AddressingStyle::kPath:
            return false;
        case AddressingStyle::kVirtualHost:
            return true;
        case AddressingStyle::kAuto:
            break;
    }
    return !amazon_domain(host).empty() && bucket_fits_in_host_name(config.bucket);
}

std::string choose_url(const StoreConfig& config, const Environment& environment, const Profile& profile,
                       const char* service, const std::string& region) {
    if (!config.endpoint_url.empty()) {
        return config.endpoint_url;
    }
    for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
        if (const auto url = environment(name)) {
            return *url;
        }
    }
    const std::string url = setting_of(profile, "endpoint_url");
    if (!url.empty()) {
        return url;
    }
    return format("https://{}.{}.amazonaws.com{}", service, region, region.starts_with("cn-") ? ".cn" : "");
}

bool is_region_name(std::string_view region) {
    return !region.empty() && region.size() <= 64 && std::all_of(region.begin(), region.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
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

std::string Endpoint::path(std::string_view key) const {
    // Virtual-host style asks the bucket itself at "/", path style at "/bucket".
    if (key.empty()) {
        return base_path.empty() ? "/" : base_path;
    }
    return base_path + '/' + uri_encode_key(key);
}

std::string Endpoint::url(std::string_view key, const Query& query) const {
    std::string text = scheme + "://" + authority + path(key);
    if (!query.empty()) {
        text += '?';
        text += canonical_query(query);
    }
    return text;
}

Result<Endpoint> resolve_endpoint(const StoreConfig& config, const Environment& environment, const Profile& profile) {
    const auto access_point = parse_access_point(config.bucket);
    if (!access_point && (config.bucket.empty() || config.bucket.find('/') != std::string::npos)) {
        return failure(EINVAL, "no bucket: the source looks like s3://BUCKET/PREFIX");
    }
    Endpoint endpoint;
    endpoint.region = access_point ? access_point->region : region_name(config.region, environment, profile);
    if (!is_region_name(endpoint.region)) {
        return failure(EINVAL, format("--region {}: not the name of a region", endpoint.region));
    }
    const char* const service = access_point ? "s3-accesspoint" : "s3";
    const Result<Url> url =
        parse_url(choose_url(config, environment, profile, service, endpoint.region), "--endpoint-url");
    if (!url) {
        return failure(url.error());
    }
    const bool virtual_host = access_point || uses_virtual_host(config, url->host);
    if (virtual_host && url->host.starts_with('[')) {
        return failure(EINVAL,
                       "virtual-hosted-style requests need a host name, not an IP address; pass --force-path-style");
    }
    endpoint.scheme = url->scheme;
    endpoint.requester_pays = config.requester_pays;
    const std::string label = access_point ? access_point->host_label() : config.bucket;
    endpoint.authority = virtual_host ? label + '.' + url->authority() : url->authority();
    endpoint.base_path = virtual_host ? url->path : url->path + '/' + uri_encode(config.bucket);
    endpoint.server = amazon_domain(url->host);
    if (endpoint.server.empty()) {
        endpoint.server = url->authority() + url->path;
    }
    return endpoint;
}

}  // namespace ckptfs::s3
