// SPDX-License-Identifier: Apache-2.0
#include "credentials/sso_source.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/digest.h"
#include "base/text.h"
#include "base/text_file.h"
#include "credentials/credential_json.h"
#include "credentials/service_client.h"
#include "s3/uri.h"
#include "s3/url.h"

namespace ckptfs {
namespace {

constexpr int kAttempts = 3;

}  // namespace

std::string sso_cache_path(const std::string& home, const SsoSettings& settings) {
    const std::string& name = settings.session.empty() ? settings.start_url : settings.session;
    return format("{}/.aws/sso/cache/{}.json", home, hex(sha1(as_bytes(name))));
}

Failure SsoSource::login_needed(const std::string& why) const {
    return failure(EACCES, format("profile {}: {}; run aws sso login --profile {}", profile_, why, profile_));
}

Result<Secret> SsoSource::access_token() const {
    const std::string path = sso_cache_path(context_.environment("HOME").value_or(""), settings_);
    const auto text = read_text_file(AT_FDCWD, path.c_str());
    if (!text) {
        return login_needed(errno == ENOENT ? "nobody is logged in" : format("{}: {}", path, std::strerror(errno)));
    }
    auto token = parse_sso_token(*text);
    if (!token) {
        return login_needed(format("{}: {}", path, token.error().message));
    }
    if (token->expires <= context_.clock.wall_now()) {
        return login_needed("the login has expired");
    }
    return std::move(token->access_token);
}

Result<SharedCredentials> SsoSource::fetch(const std::stop_token& stop) {
    const Result<Url> portal =
        parse_url(service_url(context_, "SSO", "portal.sso", settings_.region), "AWS_ENDPOINT_URL_SSO");
    if (!portal) {
        return failure(portal.error());
    }
    const Result<Secret> token = access_token();
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
        return login_needed("the login is no longer valid");
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
