// SPDX-License-Identifier: Apache-2.0
// IAM Identity Center: the keys of a role for who is logged in.
#pragma once

#include <string>

#include "credentials/source.h"
#include "credentials/source_context.h"
#include "credentials/sso_login.h"

namespace ckptfs {

class SsoSource final : public CredentialSource {
public:
    SsoSource(const SourceContext& context, const SsoSettings& settings, const std::string& profile)
        : context_(context), settings_(settings), profile_(profile), login_(context, settings, profile) {}

    [[nodiscard]] std::string name() const override { return "IAM Identity Center"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const SourceContext context_;
    const SsoSettings settings_;
    const std::string profile_;
    SsoLogin login_;
};

}  // namespace ckptfs
