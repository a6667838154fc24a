// SPDX-License-Identifier: Apache-2.0
#include "s3/endpoint.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace ckptfs {
namespace {

constexpr const char* kDefaultRegion = "us-east-1";

struct Url {
    std::string scheme;
    std::string host;
    std::string port;
    std::string path;
};

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return lower;
}

Result<Url> parse_url(std::string_view text) {
    const auto refuse = [text](const char* why) {
        return failure(EINVAL, format("--endpoint-url {}: {}; it looks like https://host[:port]", text, why));
    };
    const std::size_t scheme_end = text.find("://");
    if (scheme_end == std::string_view::npos) {
        return refuse("no scheme");
    }
    Url url;
    url.scheme = lower_case(text.substr(0, scheme_end));
    if (url.scheme != "http" && url.scheme != "https") {
        return refuse("neither http nor https");
    }
    std::string_view rest = text.substr(scheme_end + 3);
    if (rest.find_first_of("?#@ ") != std::string_view::npos) {
        return refuse("query, fragment or user in it");
    }
    const std::size_t path = std::min(rest.find('/'), rest.size());
    url.path = rest.substr(path);
    while (url.path.ends_with('/')) {
        url.path.pop_back();
    }
    rest = rest.substr(0, path);
    const std::size_t bracket = rest.rfind(']');
    const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
    url.host = lower_case(rest.substr(0, colon));
    if (colon != std::string_view::npos) {
        url.port = rest.substr(colon + 1);
        const bool digits = std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (url.port.empty() || url.port.size() > 5 || !digits) {
            return refuse("no port number after ':'");
        }
    }
    if (url.host.empty()) {
        return refuse("no host");
    }
    if ((url.scheme == "http" && url.port == "80") || (url.scheme == "https" && url.port == "443")) {
        url.port.clear();
    }
    return url;
}

bool is_amazon_host(std::string_view host) {
    return host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
}

// 3 to 63 of a-z, 0-9 and '-' ("Bucket naming rules"); a dot would not match the wildcard of Amazon's certificate.
bool fits_in_host_name(std::string_view bucket) {
    const bool characters = std::all_of(bucket.begin(), bucket.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    return characters && bucket.size() >= 3 && bucket.size() <= 63 && !bucket.starts_with('-') &&
           !bucket.ends_with('-');
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
    return is_amazon_host(host) && fits_in_host_name(config.bucket);
}

std::string from_profile(const Profile& profile, const char* name) {
    const auto found = profile.find(name);
    return found == profile.end() ? std::string() : found->second;
}

std::string choose_region(const StoreConfig& config, const Environment& environment, const Profile& profile) {
    if (!config.region.empty()) {
        return config.region;
    }
    for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
        if (const auto region = environment(name)) {
            return *region;
        }
    }
    const std::string region = from_profile(profile, "region");
    return region.empty() ? kDefaultRegion : region;
}

std::string choose_url(const StoreConfig& config, const Environment& environment, const Profile& profile,
                       const std::string& region) {
    if (!config.endpoint_url.empty()) {
        return config.endpoint_url;
    }
    for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
        if (const auto url = environment(name)) {
            return *url;
        }
    }
    const std::string url = from_profile(profile, "endpoint_url");
    if (!url.empty()) {
        return url;
    }
    return format("https://s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
}

bool is_region_name(std::string_view region) {
    return !region.empty() && region.size() <= 64 && std::all_of(region.begin(), region.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
}

}  // namespace

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
    if (config.bucket.empty() || config.bucket.find('/') != std::string::npos) {
        return failure(EINVAL, "no bucket: the source looks like s3://BUCKET/PREFIX");
    }
    Endpoint endpoint;
    endpoint.region = choose_region(config, environment, profile);
    if (!is_region_name(endpoint.region)) {
        return failure(EINVAL, format("--region {}: not the name of a region", endpoint.region));
    }
    const Result<Url> url = parse_url(choose_url(config, environment, profile, endpoint.region));
    if (!url) {
        return failure(url.error());
    }
    const bool virtual_host = uses_virtual_host(config, url->host);
    if (virtual_host && url->host.starts_with('[')) {
        return failure(EINVAL, "virtual-host style needs a host name; pass --force-path-style");
    }
    endpoint.scheme = url->scheme;
    endpoint.authority = virtual_host ? config.bucket + '.' + url->host : url->host;
    if (!url->port.empty()) {
        endpoint.authority += ':' + url->port;
    }
    endpoint.base_path = virtual_host ? url->path : url->path + '/' + uri_encode(config.bucket);
    return endpoint;
}

}  // namespace ckptfs
