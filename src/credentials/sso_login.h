// SPDX-License-Identifier: Apache-2.0
// A login of IAM Identity Center: the token that `aws sso login` has left in ~/.aws/sso/cache, renewed before it
// expires.
//
// The file is shared with the AWS tools, each of which renews it: it is read every time, and what is renewed here is
// written back for them. If it cannot be written, what was renewed is held in memory.
//
// Source: "CreateToken", IAM Identity Center OIDC API Reference; the file as the AWS SDKs and Tools Reference Guide has
// it ("IAM Identity Center credential provider").
//
// Threads: used by one thread at a time.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "credentials/credential_json.h"
#include "credentials/source.h"

namespace ckptfs {

struct SsoSettings {
    std::string start_url;
    std::string region;
    std::string account_id;
    std::string role_name;
    // Name of an [sso-session]; empty for a profile that has all settings itself, whose logins cannot be renewed.
    std::string session;

    friend bool operator==(const SsoSettings&, const SsoSettings&) = default;
};

// ~/.aws/sso/cache/SHA1.json, of the session's name or else of the start URL, as the AWS CLI names it. Pure.
[[nodiscard]] std::string sso_cache_path(const std::string& home, const SsoSettings& settings);

class SsoLogin {
public:
    SsoLogin(const SourceContext& context, SsoSettings settings, std::string profile);

    [[nodiscard]] bool is_of(const SsoSettings& settings, const std::string& profile) const {
        return settings_ == settings && profile_ == profile;
    }
    // Fails if only the user can help, saying how, and if the service that renews the token does not answer
    // (retryable).
    [[nodiscard]] Result<Secret> access_token(const std::stop_token& stop);
    // "profile NAME: why; run aws sso login …".
    [[nodiscard]] Failure login_needed(const std::string& why) const;

private:
    struct Held {
        SsoToken token;
        // Text of the login's file.
        std::string text;
    };

    [[nodiscard]] Result<Held> read() const;
    // The login in the file, or unwritten_ if that expires later.
    [[nodiscard]] Result<Held> current() const;
    [[nodiscard]] bool is_renewable(const SsoToken& token) const;
    [[nodiscard]] Result<Held> renewed(const Held& old, const std::stop_token& stop) const;
    void keep(const Held& renewed);
    [[nodiscard]] Result<Secret> without_renewal(const Held& old, Error error);

    const SourceContext context_;
    const SsoSettings settings_;
    const std::string profile_;
    const std::string path_;
    // The renewed login that could not be written to the file.
    std::optional<Held> unwritten_;
    bool told_of_failure_ = false;
    bool told_of_file_ = false;
};

}  // namespace ckptfs
