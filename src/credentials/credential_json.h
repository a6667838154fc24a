// SPDX-License-Identifier: Apache-2.0
// Credentials in JSON, as services and programs hand them out. Pure.
//
// Errors (EPROTO, or EACCES where the answer itself is an error) never hold what the text said of keys.
#pragma once

#include <string>
#include <string_view>

#include "ckptfs/clock.h"
#include "ckptfs/status.h"
#include "s3/credentials.h"

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
};
// ~/.aws/sso/cache/*.json.
[[nodiscard]] Result<SsoToken> parse_sso_token(std::string_view text);

// What a service says of a failure, as "code: message" where its body is JSON, else the beginning of the body; escaped.
[[nodiscard]] std::string failure_text(std::string_view body);

}  // namespace ckptfs
