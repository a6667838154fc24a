// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks AWS Signature Version 4, in the Authorization header or in the query of a presigned URL.
// Built from AWS's description alone and from the request as it came, apart from the client's signer.
// Immutable after construction; thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "http_message.h"
#include "outcome.h"
#include "times.h"

namespace ckptfs::s3sim {

struct SigningKeys {
    std::string access_key = "s3sim";
    std::string secret_key = "s3simsecret";
    std::optional<std::string> session_token;  // absent: any token is taken
    bool allow_anonymous = false;
};

class SignatureVerifier {
public:
    explicit SignatureVerifier(SigningKeys keys) : keys_(std::move(keys)) {}

    // The region that the request was signed for; nothing for an anonymous one that is allowed.
    Outcome<std::optional<std::string>> verify(const HttpRequest& request, SystemTime now) const;

private:
    const SigningKeys keys_;
};

}  // namespace ckptfs::s3sim
