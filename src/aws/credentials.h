// SPDX-License-Identifier: Apache-2.0
// The keys that sign requests, and the sources that have them.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "aws/secret.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct Credentials {
    std::string access_key_id;
    Secret secret_access_key;
    // Empty for long-term keys.
    Secret session_token;
    // Absent if the source does not say.
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
    // The store refused these as expired or unknown: the next get() reads the source again.
    virtual void refuse(const SharedCredentials& credentials) = 0;
    // The store accepted these: a later refusal means that they have expired since.
    virtual void accept(const SharedCredentials& /*credentials*/) {}
    // Whether the store has accepted any credentials of this provider, from any of the senders that share it.
    [[nodiscard]] virtual bool has_accepted() { return false; }
    // Where the current credentials come from, for a person; empty if unknown.
    [[nodiscard]] virtual std::string source() { return {}; }
    // Calls of get() that wait end with ECANCELED, as do all later ones.
    virtual void stop() {}
};

}  // namespace ckptfs
