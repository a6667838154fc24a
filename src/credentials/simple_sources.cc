// SPDX-License-Identifier: Apache-2.0
#include "credentials/simple_sources.h"

#include <cerrno>
#include <memory>

#include "base/text.h"
#include "credentials/credential_json.h"
#include "credentials/program_output.h"
#include "credentials/secret_file.h"

namespace ckptfs {

Result<SharedCredentials> EnvironmentSource::fetch(const std::stop_token& /*stop*/) {
    const auto id = environment_("AWS_ACCESS_KEY_ID");
    const auto secret = environment_("AWS_SECRET_ACCESS_KEY");
    if (id.has_value() != secret.has_value()) {
        return failure(EACCES, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set together");
    }
    if (!id) {
        return SharedCredentials();
    }
    return std::make_shared<const Credentials>(
        Credentials{*id, Secret(*secret), Secret(environment_("AWS_SESSION_TOKEN").value_or("")), std::nullopt});
}

Result<SharedCredentials> ProcessSource::fetch(const std::stop_token& stop) {
    const auto words = split_words(command_);
    if (!words) {
        return failure(EINVAL, format("credential_process: {}", words.error().message));
    }
    const auto output = program_output(*words, limit_, stop);
    if (!output) {
        return failure(EACCES, format("credential_process: {}", output.error().message));
    }
    auto credentials = parse_process_credentials(*output);
    if (!credentials) {
        return failure(EACCES, format("credential_process: invalid output: {}", credentials.error().message));
    }
    return std::make_shared<const Credentials>(std::move(*credentials));
}

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
