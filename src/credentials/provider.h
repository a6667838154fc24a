// SPDX-License-Identifier: Apache-2.0
// The credentials of a mount, from wherever they are configured.
//
// Threads: make_credentials_provider() waits for the first credentials.
#pragma once

#include <functional>
#include <memory>

#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"
#include "s3/credentials.h"
#include "s3/environment.h"

namespace ckptfs {

struct CredentialDependencies {
    const Clock& clock;
    // In [0, 1); called under a lock.
    std::function<double()> random;
};

// Sources in this order, as the AWS tools have them: the environment, unless the configuration names a profile; the
// shared files (AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, AWS_CONFIG_FILE or ~/.aws/config) with that profile,
// else AWS_PROFILE, else "default". With no_sign_request there are none. Fails with one line that says what to do when
// nothing is found.
[[nodiscard]] Result<std::unique_ptr<CredentialsProvider>> make_credentials_provider(const StoreConfig& config,
                                                                                     const Environment& environment,
                                                                                     CredentialDependencies use);

}  // namespace ckptfs
