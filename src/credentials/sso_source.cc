// SPDX-License-Identifier: Apache-2.0
#include "credentials/sso_source.h"

#include <cerrno>
#include <chrono>
#include <memory>

#include "aws/url.h"
#include "base/text.h"
#include "credentials/credential_json.h"
#include "credentials/service_client.h"

namespace ckptfs {
namespace {

constexpr int kAttempts = 3;

}  // namespace

Result<SharedCredentials> SsoSource::fetch(const std::stop_token& stop) {
    const Result<Url> portal =
        parse_url(service_url(context_, "SSO", "portal.sso", settings_.region), "AWS_ENDPOINT_URL_SSO");
    if (!portal) {
        return failure(portal.error());
    }
    const Result<Secret> token = login_->access_token(stop);
    if (!token) {
        return failure(token.error());
    }
    HttpRequest request;
    request.method = "GET";
    request.url = format("{}://{}{}/federation/credentials?{}", portal->scheme, portal->authority(), portal->path,
                         canonical_query({{"role_name", settings_.role_name}, {"account_id", settings_.account_id}}));
    request.headers.emplace_back("x-amz-sso_bearer_token", token->reveal());
    request.stall_timeout = std::chrono::seconds(10);
    auto answer = ServiceClient(context_.transport).ask(request, kAttempts, stop);
    if (!answer) {
        answer.error().message = format("profile {}: {}", profile_, answer.error().message);
        return failure(std::move(answer.error()));
    }
    if (answer->status == 401) {
        return login_->login_needed("the login is no longer valid");
    }
    Result<Credentials> credentials =
        answer->status == 200
            ? parse_sso_credentials(answer->body)
            : failure(EACCES, format("HTTP status {}: {}", answer->status, failure_text(answer->body)));
    if (!credentials) {
        credentials.error().retryable = is_passing(answer->status);
        credentials.error().message = format("profile {}: role {} of account {}: {}", profile_, settings_.role_name,
                                             settings_.account_id, credentials.error().message);
        return failure(std::move(credentials.error()));
    }
    return std::make_shared<const Credentials>(std::move(*credentials));
}

}  // namespace ckptfs
