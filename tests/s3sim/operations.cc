// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

#include <array>

namespace ckptfs::s3sim {
namespace {

// Answered as they were sent; the rest of x-amz-* is not kept.
constexpr auto kKeptHeaders = std::to_array<std::string_view>(
    {"Cache-Control", "Content-Disposition", "Content-Language", "Expires", "x-amz-storage-class",
     "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id",
     "x-amz-server-side-encryption-bucket-key-enabled"});

// "aws-chunked" says how the request was framed, and is no property of the object.
std::string without_aws_chunked(std::string_view encodings) {
    std::string kept;
    while (!encodings.empty()) {
        const std::string_view item = encodings.substr(0, encodings.find(','));
        encodings.remove_prefix(std::min(item.size() + 1, encodings.size()));
        if (const std::string_view name = trim(item); !name.empty() && name != "aws-chunked") {
            kept.append(kept.empty() ? "" : ",").append(name);
        }
    }
    return kept;
}

}  // namespace

OperationResult perform(const OperationInput& input) {
    switch (input.request.operation) {
        case Operation::kListBuckets:
            return list_buckets(input);
        case Operation::kCreateBucket:
            return create_bucket(input);
        case Operation::kHeadBucket:
            return head_bucket(input);
        case Operation::kDeleteBucket:
            return delete_bucket(input);
        case Operation::kGetBucketLocation:
            return get_bucket_location(input);
        case Operation::kGetBucketVersioning:
            return get_bucket_versioning(input);
        case Operation::kListObjects:
        case Operation::kListObjectsV2:
            return list_objects(input);
        case Operation::kListMultipartUploads:
            return list_multipart_uploads(input);
        case Operation::kDeleteObjects:
            return delete_objects(input);
        case Operation::kPutObject:
            return put_object(input);
        case Operation::kGetObject:
        case Operation::kHeadObject:
            return get_object(input);
        case Operation::kDeleteObject:
            return delete_object(input);
        case Operation::kCopyObject:
            return copy_object(input);
        case Operation::kCreateMultipartUpload:
            return create_multipart_upload(input);
        case Operation::kUploadPart:
            return upload_part(input);
        case Operation::kUploadPartCopy:
            return upload_part_copy(input);
        case Operation::kCompleteMultipartUpload:
            return complete_multipart_upload(input);
        case Operation::kAbortMultipartUpload:
            return abort_multipart_upload(input);
        case Operation::kListParts:
            return list_parts(input);
        case Operation::kNotImplemented:
            break;
    }
    return fail("NotImplemented");
}

ObjectAttributes read_attributes(const HttpRequest& request) {
    ObjectAttributes attributes;
    attributes.headers.emplace_back("Content-Type", request.header_or("content-type", "binary/octet-stream"));
    if (std::string encoding = without_aws_chunked(request.header_or("content-encoding", "")); !encoding.empty()) {
        attributes.headers.emplace_back("Content-Encoding", std::move(encoding));
    }
    for (const std::string_view name : kKeptHeaders) {
        if (const auto value = request.header(lower_case(name)); value && *value != "STANDARD") {
            attributes.headers.emplace_back(name, *value);
        }
    }
    for (const auto& [name, value] : request.headers) {
        if (name.starts_with("x-amz-meta-")) {
            attributes.metadata.emplace_back(name, value);
        }
    }
    return attributes;
}

Outcome<ObjectPtr> find_copy_source(const OperationInput& input) {
    const auto source = read_copy_source(input.request.http);
    if (!source) {
        return tl::unexpected(source.error());
    }
    auto object = input.table.find(source->bucket, source->key);
    if (!object) {
        return object;
    }
    const auto allowed =
        check_read_conditions(input.request.http, "x-amz-copy-source-", (*object)->etag, (*object)->last_modified);
    return allowed ? object : tl::unexpected(allowed.error());
}

std::string quoted(std::string_view etag) {
    return "\"" + std::string(etag) + "\"";
}

}  // namespace ckptfs::s3sim
