// SPDX-License-Identifier: Apache-2.0
// IAM Identity Center: the session that `aws sso login` has left in ~/.aws/sso/cache.
#pragma once

#include <string>
#include <utility>

#include "credentials/source.h"
#include "credentials/source_context.h"

namespace ckptfs {

struct SsoSettings {
    std::string start_url;
    std::string region;
    std::string account_id;
    std::string role_name;
    // Of an [sso-session]; empty for a profile that has it all.
    std::string session;
};

// ~/.aws/sso/cache/SHA1.json, of the session's name or else of the start URL, as the AWS CLI names it. Pure.
[[nodiscard]] std::string sso_cache_path(const std::string& home, const SsoSettings& settings);

class SsoSource final : public CredentialSource {
public:
    // `profile` is what has to be logged in again.
    SsoSource(const SourceContext& context, SsoSettings settings, std::string profile)
        : context_(context), settings_(std::move(settings)), profile_(std::move(profile)) {}

    [[nodiscard]] std::string name() const override { return "IAM Identity Center"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    [[nodiscard]] Result<Secret> access_token() const;
    [[nodiscard]] Failure login_needed(const std::string& why) const;

    const SourceContext context_;
    const SsoSettings settings_;
    const std::string profile_;
};

}  // namespace ckptfs
