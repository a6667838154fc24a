// SPDX-License-Identifier: Apache-2.0
#include "request_checks.h"

namespace ckptfs::s3sim {
namespace {

// Amazon S3 User Guide, "Working with object metadata": 2 KB of user-defined metadata.
constexpr std::size_t kLargestMetadata = 2048;
// 10,000 parts with ETags and SHA-256 in XML stay below this.
constexpr std::uint64_t kLargestDocument = std::uint64_t{8} << 20;

bool takes_document(Operation operation) {
    return operation == Operation::kCompleteMultipartUpload || operation == Operation::kDeleteObjects ||
           operation == Operation::kCreateBucket;
}

bool needs_bucket(Operation operation) {
    return operation != Operation::kListBuckets && operation != Operation::kCreateBucket;
}

Outcome<void> check_region(const std::string& signed_region, const std::string& bucket_region,
                           const std::string& server_region) {
    if (signed_region == bucket_region) {
        return {};
    }
    const bool at_wrong_endpoint = signed_region == server_region;
    S3Error error = s3_error(at_wrong_endpoint ? "PermanentRedirect" : "AuthorizationHeaderMalformed");
    if (at_wrong_endpoint) {
        error.details.emplace_back("Endpoint", "s3." + bucket_region + ".amazonaws.com");
    } else {
        error.message = "The authorization header is malformed; the region '" + signed_region +
                        "' is wrong; expecting '" + bucket_region + "'";
    }
    error.details.emplace_back("Region", bucket_region);
    return tl::unexpected(std::move(error));
}

Outcome<void> check_names(const S3Request& request) {
    if (request.key.size() > kLongestKey) {
        S3Error error = s3_error("KeyTooLongError");
        error.details.emplace_back("Size", std::to_string(request.key.size()));
        error.details.emplace_back("MaxSizeAllowed", std::to_string(kLongestKey));
        return tl::unexpected(std::move(error));
    }
    const bool is_part = request.operation == Operation::kUploadPart || request.operation == Operation::kUploadPartCopy;
    if (is_part && (request.part_number() < 1 || request.part_number() > kMostParts)) {
        return fail("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive");
    }
    std::size_t metadata = 0;
    for (const auto& [name, value] : request.http.headers) {
        if (name.starts_with("x-amz-meta-")) {
            metadata += name.size() - std::string_view("x-amz-meta-").size() + value.size();
        }
    }
    return metadata > kLargestMetadata ? fail("MetadataTooLarge") : Outcome<void>();
}

Outcome<void> check_body(const S3Request& request, const BodyPlan& body) {
    if (!takes_object_bytes(request.operation)) {
        return {};
    }
    if (body.transfer_chunked && !body.aws_chunked) {
        return fail("NotImplemented", "A header you provided implies functionality that is not implemented");
    }
    if (!body.length && !body.transfer_chunked) {
        return fail("MissingContentLength");
    }
    if (body.length.value_or(0) > kLargestPart) {
        return fail("EntityTooLarge");
    }
    return {};
}

}  // namespace

bool takes_object_bytes(Operation operation) {
    return operation == Operation::kPutObject || operation == Operation::kUploadPart;
}

Outcome<BodyPlan> read_body_framing(const HttpRequest& request) {
    BodyPlan body;
    body.transfer_chunked = request.chunked();
    body.aws_chunked = request.header_or("x-amz-content-sha256", "").starts_with("STREAMING-");
    if (const auto length = request.header("content-length"); length && !body.transfer_chunked) {
        body.length = parse_number(*length);
        if (!body.length) {
            return fail("InvalidRequest", "Content-Length is not a number.");
        }
    }
    return body;
}

Outcome<CheckedRequest> check_request(const S3Request& request, const ObjectTable& table,
                                      const SignatureVerifier& verifier, const std::string& region,
                                      bool verify_checksums) {
    const auto signed_region = verifier.verify(request.http, table.now());
    if (!signed_region) {
        return tl::unexpected(signed_region.error());
    }
    const auto bucket = table.bucket(request.bucket);
    if (*signed_region) {
        if (auto checked = check_region(**signed_region, bucket ? bucket->region : region, region); !checked) {
            return tl::unexpected(std::move(checked.error()));
        }
    }
    if (!bucket && needs_bucket(request.operation)) {
        S3Error error = s3_error("NoSuchBucket");
        error.details.emplace_back("BucketName", request.bucket);
        return tl::unexpected(std::move(error));
    }
    auto body = read_body_framing(request.http);
    if (!body) {
        return tl::unexpected(std::move(body.error()));
    }
    for (auto checked : {check_names(request), check_body(request, *body)}) {
        if (!checked) {
            return tl::unexpected(std::move(checked.error()));
        }
    }
    // A checksum in the head of CompleteMultipartUpload is that of the object.
    const bool checksum_of_body = request.operation != Operation::kCompleteMultipartUpload;
    auto claimed = checksum_of_body ? read_claimed_checksums(request.http) : Outcome<ClaimedChecksums>();
    if (!claimed) {
        return tl::unexpected(std::move(claimed.error()));
    }
    body->keep = takes_object_bytes(request.operation) || takes_document(request.operation);
    body->limit = takes_object_bytes(request.operation) ? kLargestPart : kLargestDocument;
    if (verify_checksums) {
        body->digests = claimed->digests();
    }
    return CheckedRequest{std::move(*claimed), std::move(*body)};
}

}  // namespace ckptfs::s3sim
