// SPDX-License-Identifier: Apache-2.0
// Makes the HTTP request of one attempt from an S3 request. Pure.
#pragma once

#include <string_view>

#include "aws/credentials.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "s3/endpoint.h"
#include "s3/requests.h"

namespace ckptfs::s3 {

// `credentials` may be null: nothing is signed. `payload_hash`: hexadecimal SHA-256 or kUnsignedPayload.
[[nodiscard]] HttpRequest signed_request(const S3Request& request, const HttpHeaders& attempt_headers,
                                         const Endpoint& endpoint, const SharedCredentials& credentials, WallTime time,
                                         std::string_view payload_hash);

}  // namespace ckptfs::s3
