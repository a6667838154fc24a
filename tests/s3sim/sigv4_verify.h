// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks AWS Signature Version 4, in the Authorization header or in the query of a presigned URL.
// Built from AWS's description alone and from the request as it came, apart from the client's signer.
// Thread-safe.

#include <map>
#include <mutex>
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

// Of a session, as the token service hands them out.
struct SessionKeys {
    std::string access_key;
    std::string secret_key;
    std::string session_token;
    SystemTime expires;
};

class SignatureVerifier {
public:
    explicit SignatureVerifier(SigningKeys keys) : keys_(std::move(keys)) {}

    // The region that the request was signed for; nothing for an anonymous one that is allowed.
    Outcome<std::optional<std::string>> verify(const HttpRequest& request, SystemTime now) const;

    // Takes these, too, until they expire; then they are answered with ExpiredToken.
    void add(SessionKeys keys);

private:
    // The keys of that name, if the store knows them and they are valid.
    Outcome<SigningKeys> keys_of(const std::string& access_key, SystemTime now) const;

    const SigningKeys keys_;

    mutable std::mutex mutex_;
    std::map<std::string, SessionKeys> sessions_;  // guarded by mutex_; by access key
};

}  // namespace ckptfs::s3sim
