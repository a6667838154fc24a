// SPDX-License-Identifier: Apache-2.0
// Where the keys that sign requests come from.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"
#include "s3/environment.h"
#include "s3/secret.h"

namespace ckptfs {

struct Credentials {
    std::string access_key_id;
    Secret secret_access_key;
    // Empty for long-term keys.
    Secret session_token;
    // Absent where the source does not say.
    std::optional<WallTime> expires;

    friend bool operator==(const Credentials&, const Credentials&) = default;
};

// Null: requests go out unsigned.
using SharedCredentials = std::shared_ptr<const Credentials>;
using CredentialsReady = std::function<void(Result<SharedCredentials>)>;

class CredentialsProvider {
public:
    virtual ~CredentialsProvider() = default;
    // Calls `ready` once, at once or later on any thread: a source may have to ask a service first.
    virtual void get(CredentialsReady ready) = 0;
    // The store refused these as expired or unknown: the next get() looks at the source again.
    virtual void refuse(const SharedCredentials& credentials) = 0;
};

// Environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), then the shared files
// (AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, AWS_CONFIG_FILE or ~/.aws/config) with the profile asked for; a
// profile named in the configuration comes before the environment, as in the AWS CLI. With no_sign_request there are
// none. Fails with one line that says what to do when nothing is found.
[[nodiscard]] Result<std::unique_ptr<CredentialsProvider>> make_credentials_provider(const StoreConfig& config,
                                                                                     const Environment& environment);

}  // namespace ckptfs
