// SPDX-License-Identifier: Apache-2.0
// A profile of the AWS tools' shared files.
#pragma once

#include <string>

#include "credentials/source.h"
#include "s3/profile_file.h"

namespace ckptfs {

class ProfileSource final : public CredentialSource {
public:
    ProfileSource(ProfileFiles files, std::string profile);

    [[nodiscard]] std::string name() const override;
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const ProfileFiles files_;
    const std::string profile_;
};

}  // namespace ckptfs
