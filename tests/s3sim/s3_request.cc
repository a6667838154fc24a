// SPDX-License-Identifier: Apache-2.0
#include "s3_request.h"

#include <algorithm>
#include <array>

#include "uri.h"

namespace ckptfs::s3sim {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "ListBuckets",
    "CreateBucket",
    "HeadBucket",
    "DeleteBucket",
    "GetBucketLocation",
    "GetBucketVersioning",
    "ListObjects",
    "ListObjectsV2",
    "ListMultipartUploads",
    "DeleteObjects",
    "PutObject",
    "GetObject",
    "HeadObject",
    "DeleteObject",
    "CopyObject",
    "CreateMultipartUpload",
    "UploadPart",
    "UploadPartCopy",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
    "ListParts",
    "NotImplemented",
});
static_assert(kNames.size() == static_cast<std::size_t>(Operation::kNotImplemented) + 1);

// Subresources that exist in S3 and not here: an honest 501 instead of a wrong answer.
constexpr auto kUnsupported = std::to_array<std::string_view>({"acl",
                                                               "accelerate",
                                                               "analytics",
                                                               "attributes",
                                                               "cors",
                                                               "encryption",
                                                               "inventory",
                                                               "legal-hold",
                                                               "lifecycle",
                                                               "logging",
                                                               "metrics",
                                                               "notification",
                                                               "object-lock",
                                                               "ownershipControls",
                                                               "policy",
                                                               "policyStatus",
                                                               "publicAccessBlock",
                                                               "replication",
                                                               "requestPayment",
                                                               "restore",
                                                               "retention",
                                                               "select",
                                                               "tagging",
                                                               "torrent",
                                                               "versions",
                                                               "versionId",
                                                               "website"});

bool is_ip_address(std::string_view host) {
    return host.find(':') != std::string_view::npos || host.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string_view without_port(std::string_view host) {
    const std::size_t colon = host.rfind(':');
    return colon == std::string_view::npos || host.ends_with(']') ? host : host.substr(0, colon);
}

std::string_view first_segment(std::string_view path) {
    path.remove_prefix(1);
    return path.substr(0, path.find('/'));
}

// The bucket that the host names, or nothing for path style.
std::optional<std::string> bucket_of_host(std::string_view host, std::string_view path, const BucketExists& exists) {
    host = without_port(host);
    if (is_ip_address(host) || host.find('.') == std::string_view::npos) {
        return std::nullopt;
    }
    // Bucket names may hold dots, so the longest match counts.
    for (std::size_t dot = host.rfind('.'); dot != std::string_view::npos && dot > 0; dot = host.rfind('.', dot - 1)) {
        if (exists(host.substr(0, dot))) {
            return std::string(host.substr(0, dot));
        }
    }
    const std::string_view label = host.substr(0, host.find('.'));
    if (label == "s3" || label.starts_with("s3-") || exists(first_segment(path))) {
        return std::nullopt;
    }
    return std::string(label);
}

Operation bucket_operation(const S3Request& request) {
    const std::string& method = request.http.method;
    const auto has = [&request](std::string_view name) { return request.parameter(name).has_value(); };
    if (method == "HEAD") {
        return Operation::kHeadBucket;
    }
    if (method == "PUT") {
        return Operation::kCreateBucket;
    }
    if (method == "DELETE") {
        return Operation::kDeleteBucket;
    }
    if (method == "POST") {
        return has("delete") ? Operation::kDeleteObjects : Operation::kNotImplemented;
    }
    if (method != "GET") {
        return Operation::kNotImplemented;
    }
    if (has("location")) {
        return Operation::kGetBucketLocation;
    }
    if (has("versioning")) {
        return Operation::kGetBucketVersioning;
    }
    if (has("uploads")) {
        return Operation::kListMultipartUploads;
    }
    return request.parameter("list-type") == "2" ? Operation::kListObjectsV2 : Operation::kListObjects;
}

Operation object_operation(const S3Request& request) {
    const std::string& method = request.http.method;
    const bool upload = request.parameter("uploadId").has_value();
    const bool copy = request.http.header("x-amz-copy-source").has_value();
    if (method == "PUT") {
        if (upload) {
            return copy ? Operation::kUploadPartCopy : Operation::kUploadPart;
        }
        return copy ? Operation::kCopyObject : Operation::kPutObject;
    }
    if (method == "GET") {
        return upload ? Operation::kListParts : Operation::kGetObject;
    }
    if (method == "HEAD") {
        return Operation::kHeadObject;
    }
    if (method == "DELETE") {
        return upload ? Operation::kAbortMultipartUpload : Operation::kDeleteObject;
    }
    if (method == "POST" && upload) {
        return Operation::kCompleteMultipartUpload;
    }
    return method == "POST" && request.parameter("uploads") ? Operation::kCreateMultipartUpload
                                                            : Operation::kNotImplemented;
}

Operation operation_of(const S3Request& request) {
    const bool unsupported = std::any_of(kUnsupported.begin(), kUnsupported.end(), [&request](std::string_view name) {
        return request.parameter(name).has_value();
    });
    if (unsupported) {
        return Operation::kNotImplemented;
    }
    if (!request.bucket.empty()) {
        return request.key.empty() ? bucket_operation(request) : object_operation(request);
    }
    return request.http.method == "GET" ? Operation::kListBuckets : Operation::kNotImplemented;
}

}  // namespace

std::string_view operation_name(Operation operation) {
    return kNames[static_cast<std::size_t>(operation)];
}

std::optional<std::string_view> S3Request::parameter(std::string_view name) const {
    for (const auto& [key_name, value] : query) {
        if (key_name == name) {
            return value;
        }
    }
    return std::nullopt;
}

int S3Request::part_number() const {
    const auto number = parse_number(parameter("partNumber").value_or(""));
    return number && *number <= 1'000'000 ? static_cast<int>(*number) : 0;
}

Outcome<S3Request> route(HttpRequest http, const BucketExists& bucket_exists) {
    S3Request request;
    auto query = parse_query(http.query);
    auto path = percent_decode(http.path);
    if (!query || !path || path->find('\0') != std::string::npos) {
        return fail("InvalidURI");
    }
    request.query = std::move(*query);
    const auto host_bucket = bucket_of_host(http.header_or("host", ""), *path, bucket_exists);
    if (host_bucket) {
        request.bucket = *host_bucket;
        request.key = path->substr(1);
    } else {
        const std::size_t slash = path->find('/', 1);
        request.bucket = path->substr(1, slash == std::string::npos ? slash : slash - 1);
        request.key = slash == std::string::npos ? "" : path->substr(slash + 1);
    }
    request.http = std::move(http);
    request.operation = operation_of(request);
    return request;
}

Outcome<CopySource> read_copy_source(const HttpRequest& request) {
    const auto decoded = percent_decode(request.header_or("x-amz-copy-source", ""));
    std::string_view source = decoded ? std::string_view(*decoded) : std::string_view();
    if (source.starts_with('/')) {
        source.remove_prefix(1);
    }
    const std::size_t slash = source.find('/');
    if (slash == std::string_view::npos || slash == 0 || slash + 1 == source.size()) {
        return fail("InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/sourcekey");
    }
    return CopySource{std::string(source.substr(0, slash)), std::string(source.substr(slash + 1))};
}

}  // namespace ckptfs::s3sim
