// SPDX-License-Identifier: Apache-2.0
#pragma once

// The checksums that a request claims for its body, and whether they are true. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "body_receiver.h"
#include "digest.h"
#include "http_message.h"
#include "outcome.h"

namespace ckptfs::s3sim {

struct Checksum {
    DigestKind kind = DigestKind::kCrc32;
    std::string value;  // base64; a composite one ends in "-" and the number of parts
    bool composite = false;
};

struct ClaimedChecksums {
    std::optional<std::string> content_md5;     // raw
    std::optional<std::string> payload_sha256;  // lower-case hex
    std::optional<Checksum> checksum;
    std::optional<DigestKind> trailer;  // the value comes after the body

    // What has to be computed over the body to check all of it.
    std::vector<DigestKind> digests() const;
    bool any() const { return content_md5 || checksum || trailer; }
};

Outcome<ClaimedChecksums> read_claimed_checksums(const HttpRequest& request);

// The body's own checksum, to be kept with it, if the request named one.
Outcome<std::optional<Checksum>> verify_checksums(const ClaimedChecksums& claimed, const ReceivedBody& body);

// CompleteMultipartUpload: the checksum of the whole object, not of the request's body.
std::optional<Checksum> read_object_checksum(const HttpRequest& request);

// "CRC32C" and the like, as headers and XML spell it.
std::optional<DigestKind> checksum_algorithm(std::string_view name);
std::string_view algorithm_name(DigestKind kind);
// "x-amz-checksum-crc32c" and the like.
std::string checksum_header(DigestKind kind);
// A value of this form could be a checksum of this kind.
bool well_formed_checksum(DigestKind kind, std::string_view base64);

// The checksum of the checksums of the parts, with "-N".
std::string composite_checksum(DigestKind kind, const std::vector<std::string>& part_values);

}  // namespace ckptfs::s3sim
