// SPDX-License-Identifier: Apache-2.0
#pragma once

// What S3 checks before it looks at a request's body: signature, region, bucket, key, sizes, headers.

#include "checksum_headers.h"
#include "object_table.h"
#include "s3_request.h"
#include "sigv4_verify.h"

namespace ckptfs::s3sim {

struct CheckedRequest {
    ClaimedChecksums claimed;
    BodyPlan body;
};

Outcome<CheckedRequest> check_request(const S3Request& request, const ObjectTable& table,
                                      const SignatureVerifier& verifier, const std::string& region,
                                      bool verify_checksums);

// How the body comes, whatever it is for; fails for lengths that cannot be.
Outcome<BodyPlan> read_body_framing(const HttpRequest& request);

// Whether the operation takes an object's bytes as its body.
bool takes_object_bytes(Operation operation);

}  // namespace ckptfs::s3sim
