// SPDX-License-Identifier: Apache-2.0
#include "credentials/sso_login.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "aws/url.h"
#include "base/digest.h"
#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"
#include "credentials/secret_file.h"
#include "credentials/service_client.h"

namespace ckptfs {
namespace {

constexpr int kAttempts = 3;
// The AWS SDKs renew it as long before its end.
constexpr std::chrono::minutes kRenewBefore{15};

}  // namespace

std::string sso_cache_path(const std::string& home, const SsoSettings& settings) {
    const std::string& name = settings.session.empty() ? settings.start_url : settings.session;
    return format("{}/.aws/sso/cache/{}.json", home, hex(sha1(as_bytes(name))));
}

SsoLogin::SsoLogin(const SourceContext& context, SsoSettings settings, std::string profile)
    : context_(context),
      settings_(std::move(settings)),
      profile_(std::move(profile)),
      path_(sso_cache_path(context_.environment("HOME").value_or(""), settings_)) {}

Failure SsoLogin::login_needed(const std::string& why) const {
    if (settings_.session.empty()) {
        return failure(EACCES, format("profile {}: {}; run aws sso login --profile {}", profile_, why, profile_));
    }
    return failure(EACCES, format("profile {}: {}; run aws sso login --sso-session {}", profile_, why,
                                  escaped(settings_.session)));
}

Result<SsoLogin::Held> SsoLogin::read() const {
    auto text = read_text_file(AT_FDCWD, path_.c_str());
    if (!text) {
        return login_needed(errno == ENOENT ? "no user is logged in" : format("{}: {}", path_, std::strerror(errno)));
    }
    auto token = parse_sso_token(*text);
    if (!token) {
        return login_needed(format("{}: {}", path_, token.error().message));
    }
    return Held{*std::move(token), *std::move(text)};
}

Result<SsoLogin::Held> SsoLogin::current() const {
    Result<Held> found = read();
    // If there is no file, the user has logged out.
    return found && unwritten_ && unwritten_->token.expires > found->token.expires ? *unwritten_ : std::move(found);
}

bool SsoLogin::is_renewable(const SsoToken& token) const {
    const bool is_registered = !token.registration_expires || *token.registration_expires > context_.clock.wall_now();
    return is_registered && !settings_.session.empty() && !token.refresh_token.empty() && !token.client_id.empty() &&
           !token.client_secret.empty();
}

Result<Secret> SsoLogin::access_token(const std::stop_token& stop) {
    Result<Held> held = current();
    if (!held) {
        return failure(held.error());
    }
    const WallTime now = context_.clock.wall_now();
    if (held->token.expires - now > kRenewBefore) {
        return std::move(held->token.access_token);
    }
    if (!is_renewable(held->token)) {
        return held->token.expires > now ? Result<Secret>(std::move(held->token.access_token))
                                         : login_needed("the login has expired");
    }
    Result<Held> next = renewed(*held, stop);
    if (!next) {
        return without_renewal(*held, std::move(next.error()));
    }
    keep(*next);
    return std::move(next->token.access_token);
}

Result<SsoLogin::Held> SsoLogin::renewed(const Held& old, const std::stop_token& stop) const {
    const Result<Url> service =
        parse_url(service_url(context_, "SSO_OIDC", "oidc", settings_.region), "AWS_ENDPOINT_URL_SSO_OIDC");
    if (!service) {
        return failure(service.error());
    }
    HttpRequest request;
    request.method = "POST";
    request.url = format("{}://{}{}/token", service->scheme, service->authority(), service->path);
    request.headers.emplace_back("content-type", "application/json");
    request.body = Payload::from_string(sso_renewal_body(old.token));
    request.stall_timeout = std::chrono::seconds(10);
    auto answer = ServiceClient(context_.transport).ask(request, kAttempts, stop);
    if (!answer) {
        answer.error().message = format("profile {}: {}", profile_, answer.error().message);
        return failure(std::move(answer.error()));
    }
    if (answer->status != 200) {
        const std::string code = failure_code(answer->body);
        const std::string why = format("the login could not be renewed: {}",
                                       code.empty() ? format("HTTP status {}", answer->status) : code);
        if (!is_passing(answer->status)) {
            return login_needed(why);
        }
        Failure passing = failure(EACCES, format("profile {}: {}", profile_, why));
        passing.value().retryable = true;
        return passing;
    }
    const auto text = parse_sso_renewal(answer->body).and_then([&](const SsoRenewal& renewal) {
        return renewed_sso_token(old.text, renewal, context_.clock.wall_now());
    });
    auto token = text ? parse_sso_token(*text) : failure(text.error());
    if (!token) {
        return failure(EPROTO, format("profile {}: the login could not be renewed: {}: {}", profile_,
                                      service->authority(), token.error().message));
    }
    return Held{*std::move(token), *text};
}

void SsoLogin::keep(const Held& renewed) {
    told_of_failure_ = false;
    const Status written = replace_secret_file(path_, renewed.text);
    if (written) {
        unwritten_.reset();
        return;
    }
    unwritten_ = renewed;
    if (!std::exchange(told_of_file_, true)) {
        log_warning(format("profile {}: the renewed login could not be written to {} ({}); only this mount has it",
                           profile_, path_, written.error().message));
    }
}

Result<Secret> SsoLogin::without_renewal(const Held& old, Error error) {
    const WallTime now = context_.clock.wall_now();
    // Another program may have renewed the login meanwhile: a refresh token works for one of them only.
    if (Result<Held> found = current();
        found && found->token.access_token != old.token.access_token && found->token.expires > now) {
        return std::move(found->token.access_token);
    }
    if (old.token.expires <= now) {
        return failure(std::move(error));
    }
    if (!std::exchange(told_of_failure_, true)) {
        log_warning(escaped(error.message));
    }
    return old.token.access_token;
}

}  // namespace ckptfs
