// SPDX-License-Identifier: Apache-2.0
// Credentials in JSON, as services and programs hand them out. Pure.
//
// Errors (EPROTO, or EACCES where the answer itself is an error) never contain secrets from the text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "aws/credentials.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

// Container endpoints and the instance metadata: AccessKeyId, SecretAccessKey, Token, Expiration; Code and Message.
[[nodiscard]] Result<Credentials> parse_metadata_credentials(std::string_view body);
// credential_process: Version 1, AccessKeyId, SecretAccessKey, SessionToken, Expiration.
[[nodiscard]] Result<Credentials> parse_process_credentials(std::string_view output);
// GetRoleCredentials of IAM Identity Center: roleCredentials, expiration in milliseconds.
[[nodiscard]] Result<Credentials> parse_sso_credentials(std::string_view body);

struct SsoToken {
    Secret access_token;
    WallTime expires;
    // With these the token can be renewed; empty in a login that cannot.
    Secret refresh_token;
    std::string client_id;
    Secret client_secret;
    // When the client's registration expires; nothing is renewed afterwards.
    std::optional<WallTime> registration_expires;
};
// ~/.aws/sso/cache/*.json.
[[nodiscard]] Result<SsoToken> parse_sso_token(std::string_view text);

// CreateToken of IAM Identity Center OIDC.
struct SsoRenewal {
    Secret access_token;
    std::chrono::seconds valid_for;
    // Empty if the one that was sent stays in use.
    Secret refresh_token;
};
[[nodiscard]] std::string sso_renewal_body(const SsoToken& token);
[[nodiscard]] Result<SsoRenewal> parse_sso_renewal(std::string_view body);
// `text`, the file of a login, with what was renewed in it; members that are not known stay as they are.
[[nodiscard]] Result<std::string> renewed_sso_token(std::string_view text, const SsoRenewal& renewal, WallTime now);

// The code of an error alone, which holds nothing of what was sent, escaped; empty if there is none.
[[nodiscard]] std::string failure_code(std::string_view body);
// What a service says of a failure, escaped: "code: message" if its body is JSON, else the beginning of the body.
[[nodiscard]] std::string failure_text(std::string_view body);

}  // namespace ckptfs
