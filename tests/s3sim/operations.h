// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations of S3, one function each, over an ObjectTable. Thread-safe as the table is.
// Signature, bucket and body checksums have been checked before (request_checks.h).

#include <optional>

#include "checksum_headers.h"
#include "object_table.h"
#include "s3_reply.h"
#include "s3_request.h"

namespace ckptfs::s3sim {

struct OperationInput {
    ObjectTable& table;
    const S3Request& request;
    ReceivedBody& body;
    const std::optional<Checksum>& checksum;  // of the body, verified
    const std::string& region;
    PartRules part_rules;
    bool ignores_delete_conditions = false;
};

using OperationResult = Outcome<S3Reply>;

OperationResult perform(const OperationInput& input);

OperationResult list_buckets(const OperationInput& input);
OperationResult create_bucket(const OperationInput& input);
OperationResult head_bucket(const OperationInput& input);
OperationResult delete_bucket(const OperationInput& input);
OperationResult get_bucket_location(const OperationInput& input);
OperationResult get_bucket_versioning(const OperationInput& input);

OperationResult list_objects(const OperationInput& input);  // both versions
OperationResult list_multipart_uploads(const OperationInput& input);
OperationResult list_parts(const OperationInput& input);

OperationResult put_object(const OperationInput& input);
OperationResult get_object(const OperationInput& input);  // and HeadObject
OperationResult delete_object(const OperationInput& input);
OperationResult delete_objects(const OperationInput& input);
OperationResult copy_object(const OperationInput& input);

OperationResult create_multipart_upload(const OperationInput& input);
OperationResult upload_part(const OperationInput& input);
OperationResult upload_part_copy(const OperationInput& input);
OperationResult complete_multipart_upload(const OperationInput& input);
OperationResult abort_multipart_upload(const OperationInput& input);

// Shared by several of them.
ObjectAttributes read_attributes(const HttpRequest& request);
// The source of a copy, once the x-amz-copy-source-if-* headers hold.
Outcome<ObjectPtr> find_copy_source(const OperationInput& input);
std::string quoted(std::string_view etag);

}  // namespace ckptfs::s3sim
