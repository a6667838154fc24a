// SPDX-License-Identifier: Apache-2.0
// The sources of a few lines each: variables, a program's output, a role for a token in a file.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "base/environment.h"
#include "credentials/security_token_service.h"
#include "credentials/source.h"

namespace ckptfs {

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
class EnvironmentSource final : public CredentialSource {
public:
    explicit EnvironmentSource(Environment environment) : environment_(std::move(environment)) {}

    [[nodiscard]] std::string name() const override { return "the environment (AWS_ACCESS_KEY_ID)"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const Environment environment_;
};

// credential_process of a profile: a program that prints credentials. Source: "Process credential provider", AWS SDKs
// and Tools Reference Guide.
class ProcessSource final : public CredentialSource {
public:
    // A program may ask a service, or the user.
    static constexpr std::chrono::seconds kTimeLimit{60};

    explicit ProcessSource(std::string command, std::chrono::milliseconds limit = kTimeLimit)
        : command_(std::move(command)), limit_(limit) {}

    [[nodiscard]] std::string name() const override { return "credential_process"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const std::string command_;
    const std::chrono::milliseconds limit_;
};

// A role for a token that something else keeps fresh in a file: IAM roles for service accounts.
class WebIdentitySource final : public CredentialSource {
public:
    // From AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_SESSION_NAME; fetch() returns null if the file is not
    // named.
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
