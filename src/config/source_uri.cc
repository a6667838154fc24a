// SPDX-License-Identifier: Apache-2.0
#include "config/source_uri.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr std::string_view kScheme = "s3://";
// Longest bucket name of Amazon S3 before 2018 ("General purpose bucket naming rules"); other stores are no stricter.
constexpr std::size_t kLongestBucket = 255;

bool is_bucket_letter(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '.' || letter == '_';
}

// A key below the prefix must have exactly one path in the mount.
bool is_path(std::string_view prefix) {
    while (!prefix.empty()) {
        const std::size_t end = std::min(prefix.find('/'), prefix.size());
        const std::string_view name = prefix.substr(0, end);
        if (name.empty() || name == "." || name == ".." || name.size() > kMaxNameBytes) {
            return false;
        }
        prefix.remove_prefix(std::min(end + 1, prefix.size()));
    }
    return true;
}

// An ARN ends at the second '/', or at the first where its name follows a ':'.
std::size_t end_of_bucket(std::string_view rest) {
    constexpr std::string_view kAccessPoint = ":accesspoint/";
    const std::size_t resource = rest.starts_with("arn:") ? rest.find(kAccessPoint) : std::string_view::npos;
    const std::size_t name = resource == std::string_view::npos ? 0 : resource + kAccessPoint.size();
    return std::min(rest.find('/', name), rest.size());
}

bool is_bucket(std::string_view name) {
    if (name.starts_with("arn:")) {
        return true;  // resolve_endpoint() checks it
    }
    return !name.empty() && name.size() <= kLongestBucket && std::all_of(name.begin(), name.end(), is_bucket_letter);
}

Result<ObjectUri> split(std::string_view text) {
    if (!text.starts_with(kScheme)) {
        return failure(EINVAL,
                       format("\"{}\" is not a source; expected s3://BUCKET or s3://BUCKET/PREFIX", escaped(text)));
    }
    const std::string_view rest = text.substr(kScheme.size());
    const std::size_t slash = end_of_bucket(rest);
    ObjectUri uri{std::string(rest.substr(0, slash)), std::string(rest.substr(std::min(slash + 1, rest.size())))};
    if (!is_bucket(uri.bucket)) {
        return failure(EINVAL, format("\"{}\" does not name a bucket; expected s3://BUCKET/PREFIX", escaped(text)));
    }
    return uri;
}

}  // namespace

std::string directory_prefix(std::string prefix) {
    if (!prefix.empty() && !prefix.ends_with('/')) {
        prefix += '/';
    }
    return prefix;
}

Result<SourceUri> parse_source(std::string_view text) {
    const Result<ObjectUri> parts = split(text);
    if (!parts) {
        return failure(parts.error());
    }
    SourceUri uri{parts->bucket, parts->key};
    if (!is_path(uri.prefix) || uri.prefix.size() >= kMaxKeyBytes) {
        return failure(EINVAL,
                       format("the prefix of \"{}\" cannot be a directory: it holds an empty name, \".\", \"..\", "
                              "or is too long",
                              escaped(text)));
    }
    uri.prefix = directory_prefix(std::move(uri.prefix));
    return uri;
}

Result<ObjectUri> parse_object_uri(std::string_view text) {
    Result<ObjectUri> uri = split(text);
    if (uri && uri->key.size() > kMaxKeyBytes) {
        return failure(EINVAL, format("\"{}\": S3 has no key of more than {} bytes", escaped(text), kMaxKeyBytes));
    }
    return uri;
}

}  // namespace ckptfs
