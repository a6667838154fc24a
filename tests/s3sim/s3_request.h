// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an HTTP request asks of S3: operation, bucket, key. Pure.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http_message.h"
#include "outcome.h"

namespace ckptfs::s3sim {

enum class Operation {
    kListBuckets,
    kCreateBucket,
    kHeadBucket,
    kDeleteBucket,
    kGetBucketLocation,
    kGetBucketVersioning,
    kListObjects,
    kListObjectsV2,
    kListMultipartUploads,
    kDeleteObjects,
    kPutObject,
    kGetObject,
    kHeadObject,
    kDeleteObject,
    kCopyObject,
    kCreateMultipartUpload,
    kUploadPart,
    kUploadPartCopy,
    kCompleteMultipartUpload,
    kAbortMultipartUpload,
    kListParts,
    kNotImplemented,
};

std::string_view operation_name(Operation operation);

struct S3Request {
    HttpRequest http;
    Operation operation = Operation::kNotImplemented;
    std::string bucket;
    std::string key;
    std::vector<NameValue> query;  // decoded

    std::optional<std::string_view> parameter(std::string_view name) const;
    bool is_head() const { return http.method == "HEAD"; }
    // Of UploadPart and UploadPartCopy; 0 where it is no number.
    int part_number() const;
};

// Tells virtual-host from path style: the host's first labels name a bucket that exists, or could.
using BucketExists = std::function<bool(std::string_view)>;
Outcome<S3Request> route(HttpRequest http, const BucketExists& bucket_exists);

struct CopySource {
    std::string bucket;
    std::string key;
};
Outcome<CopySource> read_copy_source(const HttpRequest& request);

}  // namespace ckptfs::s3sim
