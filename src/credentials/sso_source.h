// SPDX-License-Identifier: Apache-2.0
// IAM Identity Center: the keys of a role for the logged-in user.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "credentials/source.h"
#include "credentials/sso_login.h"

namespace ckptfs {

class SsoSource final : public CredentialSource {
public:
    SsoSource(const SourceContext& context, SsoSettings settings, std::string profile, std::shared_ptr<SsoLogin> login)
        : context_(context), settings_(std::move(settings)), profile_(std::move(profile)), login_(std::move(login)) {}

    [[nodiscard]] std::string name() const override { return "IAM Identity Center"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const SourceContext context_;
    const SsoSettings settings_;
    const std::string profile_;
    const std::shared_ptr<SsoLogin> login_;
};

}  // namespace ckptfs
