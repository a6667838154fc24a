// SPDX-License-Identifier: Apache-2.0
// The keys that sign requests, and whoever has them.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/status.h"
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
    // The store took these: a later refusal says that they have ended since.
    virtual void accept(const SharedCredentials& /*credentials*/) {}
    // Where the present ones come from, for a person; empty where nobody knows.
    [[nodiscard]] virtual std::string source() { return {}; }
    // Whoever waits is answered with ECANCELED, as is everyone who asks later.
    virtual void stop() {}
};

}  // namespace ckptfs
