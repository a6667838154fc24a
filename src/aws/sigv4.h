// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4 in the Authorization header. Pure.
//
// Source: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)", Amazon S3 API Reference.
#pragma once

#include <string>
#include <string_view>

#include "aws/credentials.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"

namespace ckptfs {

inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
// SHA-256 of nothing.
inline constexpr std::string_view kEmptyPayloadHash =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct UnsignedRequest {
    std::string_view method;
    // Percent-encoded once, as it is sent.
    std::string_view path;
    // From canonical_query(), as it is sent.
    std::string_view query;
    // Everything that is signed, host included; names in lower case.
    HttpHeaders headers;
    // Hexadecimal SHA-256 of the body, or kUnsignedPayload.
    std::string_view payload_hash;
};

struct SigningScope {
    WallTime time;
    std::string_view region;
    std::string_view service = "s3";
};

[[nodiscard]] std::string canonical_request(const UnsignedRequest& request);
[[nodiscard]] std::string string_to_sign(std::string_view canonical, const SigningScope& scope);
// Value of the Authorization header. The request's headers already hold x-amz-date, x-amz-content-sha256 and, with a
// session, x-amz-security-token.
[[nodiscard]] std::string authorization(const UnsignedRequest& request, const SigningScope& scope,
                                        const Credentials& credentials);

}  // namespace ckptfs
