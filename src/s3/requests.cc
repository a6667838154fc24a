// SPDX-License-Identifier: Apache-2.0
#include "s3/requests.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "s3/endpoint.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

S3Request make(std::string operation, std::string method, std::string key) {
    S3Request request;
    request.operation = std::move(operation);
    request.method = std::move(method);
    request.key = std::move(key);
    return request;
}

void add(HttpHeaders& headers, const char* name, const std::string& value) {
    if (!value.empty()) {
        headers.emplace_back(name, value);
    }
}

void add_metadata(HttpHeaders& headers, const Metadata& metadata) {
    for (const auto& [name, value] : metadata) {
        headers.emplace_back("x-amz-meta-" + name, value);
    }
}

void add_all(HttpHeaders& headers, const std::map<std::string, std::string>& more) {
    headers.insert(headers.end(), more.begin(), more.end());
}

// Comes last: the headers of a copied object are there by then.
void add_encryption(HttpHeaders& headers, const RequestDefaults& defaults) {
    if (defaults.encryption.empty()) {
        return;
    }
    std::erase_if(headers, [](const auto& header) { return header.first.starts_with("x-amz-server-side-encryption"); });
    headers.emplace_back("x-amz-server-side-encryption", defaults.encryption);
    add(headers, "x-amz-server-side-encryption-aws-kms-key-id", defaults.kms_key_id);
}

// x-amz-copy-source is a path, or the ARN of an object behind an access point; the key is percent-encoded in it.
std::string copy_source(const RequestDefaults& defaults, const std::string& key) {
    if (parse_access_point(defaults.bucket)) {
        return uri_encode_key(defaults.bucket + "/object/" + key);
    }
    return '/' + uri_encode(defaults.bucket) + '/' + uri_encode_key(key);
}

void add_upload(S3Request& request, const UploadId& upload) {
    request.query.emplace_back("uploadId", upload.id);
}

}  // namespace

S3Request head_request(const std::string& key) {
    return make("HeadObject", "HEAD", key);
}

S3Request get_request(const std::string& key) {
    return make("GetObject", "GET", key);
}

HttpHeaders range_headers(const std::optional<ByteRange>& range, const std::string& if_match) {
    HttpHeaders headers;
    if (range && range->suffix) {
        headers.emplace_back("range", format("bytes=-{}", range->length));
    } else if (range) {
        headers.emplace_back("range", format("bytes={}-{}", range->offset, range->offset + range->length - 1));
    }
    add(headers, "if-match", if_match);
    return headers;
}

S3Request put_request(const RequestDefaults& defaults, const PutRequest& put) {
    S3Request request = make("PutObject", "PUT", put.key);
    add(request.headers, "content-type", put.content_type);
    add(request.headers, "content-encoding", put.content_encoding);
    add(request.headers, "x-amz-storage-class", defaults.storage_class);
    add(request.headers, "if-match", put.if_match);
    add(request.headers, "if-none-match", put.if_none_match ? "*" : "");
    if (defaults.checksums && put.crc32c) {
        add(request.headers, "x-amz-checksum-crc32c", crc32c_base64(*put.crc32c));
    }
    add_metadata(request.headers, put.metadata);
    add_encryption(request.headers, defaults);
    request.body = put.body;
    return request;
}

S3Request copy_request(const RequestDefaults& defaults, const CopyRequest& copy) {
    S3Request request = make("CopyObject", "PUT", copy.key);
    add(request.headers, "x-amz-copy-source", copy_source(defaults, copy.source_key));
    add(request.headers, "x-amz-copy-source-if-match", copy.source_if_match);
    add(request.headers, "x-amz-metadata-directive", copy.description ? "REPLACE" : "COPY");
    if (copy.description) {
        add(request.headers, "content-type", copy.description->content_type);
        add(request.headers, "content-encoding", copy.description->content_encoding);
        add_all(request.headers, copy.description->other_headers);
        add_metadata(request.headers, copy.description->metadata);
    }
    add(request.headers, "x-amz-storage-class", defaults.storage_class);
    add(request.headers, "if-none-match", copy.if_none_match ? "*" : "");
    add_encryption(request.headers, defaults);
    return request;
}

S3Request list_request(const ListRequest& list) {
    S3Request request = make("ListObjectsV2", "GET", "");
    request.query = {{"list-type", "2"},
                     {"encoding-type", "url"},
                     {"max-keys", std::to_string(list.max_keys)},
                     {"prefix", list.prefix}};
    if (!list.delimiter.empty()) {
        request.query.emplace_back("delimiter", list.delimiter);
    }
    if (!list.continuation_token.empty()) {
        request.query.emplace_back("continuation-token", list.continuation_token);
    }
    if (!list.start_after.empty()) {
        request.query.emplace_back("start-after", list.start_after);
    }
    return request;
}

S3Request delete_request(const RemoveRequest& remove) {
    S3Request request = make("DeleteObject", "DELETE", remove.key);
    add(request.headers, "if-match", remove.if_match);
    return request;
}

S3Request delete_many_request(const std::vector<RemoveRequest>& requests) {
    S3Request request = make("DeleteObjects", "POST", "");
    request.query = {{"delete", ""}};
    request.body = Payload::from_string(delete_objects_body(requests));
    return request;
}

S3Request create_upload_request(const RequestDefaults& defaults, const CreateUploadRequest& create) {
    S3Request request = make("CreateMultipartUpload", "POST", create.key);
    request.query = {{"uploads", ""}};
    add(request.headers, "content-type", create.content_type);
    add(request.headers, "content-encoding", create.content_encoding);
    add(request.headers, "x-amz-storage-class",
        create.storage_class.empty() ? defaults.storage_class : create.storage_class);
    add_all(request.headers, create.other_headers);
    if (defaults.checksums) {
        add(request.headers, "x-amz-checksum-algorithm", "CRC32C");
        add(request.headers, "x-amz-checksum-type", "COMPOSITE");
    }
    add_metadata(request.headers, create.metadata);
    add_encryption(request.headers, defaults);
    return request;
}

S3Request upload_part_request(const RequestDefaults& defaults, const UploadPartRequest& part) {
    S3Request request = make("UploadPart", "PUT", part.upload.key);
    request.query = {{"partNumber", std::to_string(part.part_number)}};
    add_upload(request, part.upload);
    if (defaults.checksums) {
        add(request.headers, "x-amz-checksum-crc32c", crc32c_base64(part.crc32c));
    }
    request.body = part.body;
    return request;
}

S3Request upload_part_copy_request(const RequestDefaults& defaults, const UploadPartCopyRequest& part) {
    S3Request request = make("UploadPartCopy", "PUT", part.upload.key);
    request.query = {{"partNumber", std::to_string(part.part_number)}};
    add_upload(request, part.upload);
    add(request.headers, "x-amz-copy-source", copy_source(defaults, part.source_key));
    add(request.headers, "x-amz-copy-source-if-match", part.source_if_match);
    if (part.range) {
        add(request.headers, "x-amz-copy-source-range",
            format("bytes={}-{}", part.range->offset, part.range->offset + part.range->length - 1));
    }
    return request;
}

S3Request complete_request(const CompleteRequest& complete) {
    S3Request request = make("CompleteMultipartUpload", "POST", complete.upload.key);
    add_upload(request, complete.upload);
    add(request.headers, "if-none-match", complete.if_none_match ? "*" : "");
    std::vector<UploadedPart> parts = complete.parts;
    // S3 wants them in this order (InvalidPartOrder).
    std::sort(parts.begin(), parts.end(),
              [](const UploadedPart& a, const UploadedPart& b) { return a.part_number < b.part_number; });
    request.body = Payload::from_string(complete_upload_body(parts));
    return request;
}

S3Request abort_request(const UploadId& upload) {
    S3Request request = make("AbortMultipartUpload", "DELETE", upload.key);
    add_upload(request, upload);
    return request;
}

S3Request list_uploads_request(const std::string& prefix, const std::string& key_marker,
                               const std::string& upload_id_marker, bool encoded) {
    S3Request request = make("ListMultipartUploads", "GET", "");
    request.query = {{"uploads", ""}, {"prefix", prefix}};
    if (encoded) {
        request.query.emplace_back("encoding-type", "url");
    }
    if (!key_marker.empty()) {
        request.query.emplace_back("key-marker", key_marker);
    }
    if (!upload_id_marker.empty()) {
        request.query.emplace_back("upload-id-marker", upload_id_marker);
    }
    return request;
}

S3Request list_parts_request(const UploadId& upload, int part_number_marker) {
    S3Request request = make("ListParts", "GET", upload.key);
    add_upload(request, upload);
    if (part_number_marker > 0) {
        request.query.emplace_back("part-number-marker", std::to_string(part_number_marker));
    }
    return request;
}

std::size_t largest_answer(const S3Request& request) {
    constexpr std::size_t kPage = std::size_t{16} << 20;
    // Less than 1 KiB, except for the blanks that a store sends while it works on a Complete or a copy.
    constexpr std::size_t kOther = std::size_t{1} << 20;
    if (request.method == "HEAD") {
        return 0;
    }
    return request.operation.starts_with("List") || request.operation == "DeleteObjects" ? kPage : kOther;
}

bool is_sent_once(const S3Request& request) {
    return request.method != "GET" && request.method != "HEAD" && request.operation != "UploadPart";
}

}  // namespace ckptfs::s3
