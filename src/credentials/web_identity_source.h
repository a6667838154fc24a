// SPDX-License-Identifier: Apache-2.0
// A role for a token that something else keeps fresh in a file: IAM roles for service accounts.
#pragma once

#include <string>
#include <utility>

#include "credentials/security_token_service.h"
#include "credentials/source.h"

namespace ckptfs {

class WebIdentitySource final : public CredentialSource {
public:
    // Of AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_SESSION_NAME; nothing where the file is not named.
    explicit WebIdentitySource(const SourceContext& context);
    WebIdentitySource(const SourceContext& context, Role role, std::string token_file)
        : context_(context), role_(std::move(role)), token_file_(std::move(token_file)) {}

    [[nodiscard]] std::string name() const override { return "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"; }
    // Reads the file every time.
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const SourceContext context_;
    const Role role_;
    const std::string token_file_;
};

}  // namespace ckptfs
