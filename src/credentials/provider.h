// SPDX-License-Identifier: Apache-2.0
// The credentials of a mount, from wherever they are configured.
//
// Threads: make_credentials_provider() waits for the first credentials.
#pragma once

#include <functional>
#include <memory>

#include "aws/credentials.h"
#include "base/environment.h"
#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

// What a provider uses; the references outlive it.
struct CredentialDependencies {
    HttpTransport& transport;
    const Clock& clock;
    // In [0, 1); called under a lock.
    std::function<double()> random;
};

// Sources in the order of the AWS tools: the environment; web identity (AWS_WEB_IDENTITY_TOKEN_FILE); the shared files
// (AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, AWS_CONFIG_FILE or ~/.aws/config) with AWS_PROFILE, else
// "default"; the container's endpoint; the instance metadata. A profile that the configuration names is used instead of
// the first three. With no_sign_request there are none. Fails with one line that names the source that is configured
// and fails, or says what to do if nothing is found.
[[nodiscard]] Result<std::unique_ptr<CredentialsProvider>> make_credentials_provider(const StoreConfig& config,
                                                                                     const Environment& environment,
                                                                                     CredentialDependencies use);

}  // namespace ckptfs
