// SPDX-License-Identifier: Apache-2.0
// For requests that are not signed.
#pragma once

#include "aws/credentials.h"

namespace ckptfs::testing {

class NoCredentials final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override { ready(SharedCredentials()); }
    void refuse(const SharedCredentials&) override {}
};

}  // namespace ckptfs::testing
