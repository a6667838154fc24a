// SPDX-License-Identifier: Apache-2.0
// A profile of the AWS tools' shared files: keys, or what leads to some.
#pragma once

#include <memory>
#include <string>

#include "credentials/profile_plan.h"
#include "credentials/source.h"

namespace ckptfs {

class ProfileSource final : public CredentialSource {
public:
    // `must_exist`: the user has asked for this profile by name.
    ProfileSource(const SourceContext& context, std::string profile, bool must_exist);

    [[nodiscard]] std::string name() const override;
    // Reads the files every time.
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    [[nodiscard]] Result<SharedCredentials> fetch_origin(const ProfilePlan& plan, const std::stop_token& stop);
    [[nodiscard]] std::unique_ptr<CredentialSource> make_origin(const ProfilePlan& plan);
    void warn_of_readers();

    const SourceContext context_;
    const std::string profile_;
    const bool must_exist_;
    bool warned_ = false;
    ClockCorrection service_clock_;
    // The login of the last plan, which holds renewed tokens that could not be written back.
    std::shared_ptr<SsoLogin> login_;
};

// Whether the permissions of a file let users other than its owner read it. Pure.
[[nodiscard]] bool is_open_to_others(unsigned mode);

}  // namespace ckptfs
