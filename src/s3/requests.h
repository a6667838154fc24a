// SPDX-License-Identifier: Apache-2.0
// How each S3 operation is sent: method, query, headers, body. Pure.
//
// What is missing here is added when an attempt is signed: host, date, payload hash, authorization.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "aws/url.h"
#include "ckptfs/http.h"
#include "ckptfs/object_store.h"

namespace ckptfs::s3 {

struct S3Request {
    // "PutObject": for messages.
    std::string operation;
    std::string method;
    // Empty for requests to the bucket.
    std::string key;
    Query query;
    // Names in lower case.
    HttpHeaders headers;
    Payload body;
};

struct RequestDefaults {
    std::string bucket;
    std::string storage_class;
    // False for stores that refuse checksum headers.
    bool checksums = true;
    // As in StoreConfig; replaces the encryption of an object that is copied.
    std::string encryption;
    std::string kms_key_id;
};

[[nodiscard]] S3Request head_request(const std::string& key);
// The headers Range and If-Match are set for each attempt: a resumed one asks for less.
[[nodiscard]] S3Request get_request(const std::string& key);
[[nodiscard]] HttpHeaders range_headers(const std::optional<ByteRange>& range, const std::string& if_match);
[[nodiscard]] S3Request put_request(const RequestDefaults& defaults, const PutRequest& put);
[[nodiscard]] S3Request copy_request(const RequestDefaults& defaults, const CopyRequest& copy);
[[nodiscard]] S3Request list_request(const ListRequest& list);
[[nodiscard]] S3Request delete_request(const RemoveRequest& remove);
// Without the checksum of its body, which the caller has to add.
[[nodiscard]] S3Request delete_many_request(const std::vector<RemoveRequest>& requests);
[[nodiscard]] S3Request create_upload_request(const RequestDefaults& defaults, const CreateUploadRequest& create);
[[nodiscard]] S3Request upload_part_request(const RequestDefaults& defaults, const UploadPartRequest& part);
[[nodiscard]] S3Request upload_part_copy_request(const RequestDefaults& defaults, const UploadPartCopyRequest& part);
[[nodiscard]] S3Request complete_request(const CompleteRequest& complete);
[[nodiscard]] S3Request abort_request(const UploadId& upload);
// `encoded`: keys are percent-encoded in the reply, which can then hold any key.
[[nodiscard]] S3Request list_uploads_request(const std::string& prefix, const std::string& key_marker,
                                             const std::string& upload_id_marker, bool encoded = true);
[[nodiscard]] S3Request list_parts_request(const UploadId& upload, int part_number_marker);

// How many bytes of a successful reply are collected at most. A page of a list has 1,000 names, of uploads 10,000 on
// some stores: 16 MiB are enough for names of 1,024 bytes, each of them escaped by six.
[[nodiscard]] std::size_t largest_answer(const S3Request& request);
// As in HttpRequest: all that changes the store, except UploadPart, which puts the same bytes in the same place.
[[nodiscard]] bool is_sent_once(const S3Request& request);

}  // namespace ckptfs::s3
