// SPDX-License-Identifier: Apache-2.0
#include "credentials/web_identity_source.h"

#include "credentials/secret_file.h"

namespace ckptfs {

WebIdentitySource::WebIdentitySource(const SourceContext& context)
    : context_(context),
      role_{context.environment("AWS_ROLE_ARN").value_or(""), context.environment("AWS_ROLE_SESSION_NAME").value_or(""),
            "", ""},
      token_file_(context.environment("AWS_WEB_IDENTITY_TOKEN_FILE").value_or("")) {}

Result<SharedCredentials> WebIdentitySource::fetch(const std::stop_token& stop) {
    if (token_file_.empty()) {
        return SharedCredentials();
    }
    if (role_.arn.empty()) {
        return failure(EACCES, "AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not");
    }
    const Result<Secret> token = read_secret_file(token_file_, "web identity token");
    if (!token) {
        return failure(token.error());
    }
    return assume_role_with_web_identity(context_, role_, *token, stop);
}

}  // namespace ckptfs
