// SPDX-License-Identifier: Apache-2.0
#include "credentials/security_token_service.h"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "aws/sigv4.h"
#include "aws/times.h"
#include "aws/url.h"
#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "credentials/service_client.h"
#include "s3/error_table.h"
#include "s3/xml.h"

namespace ckptfs {
namespace {

constexpr int kAttempts = 3;
// From this difference on the AWS SDKs take the service's time.
constexpr std::chrono::minutes kWorthATry{4};

HttpRequest form_request(Query form, const Url& service) {
    HttpRequest request;
    request.method = "POST";
    request.url = format("{}://{}{}/", service.scheme, service.authority(), service.path);
    request.headers.emplace_back("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    form.emplace_back("Version", "2011-06-15");
    request.body = Payload::from_string(canonical_query(form));
    request.stall_timeout = std::chrono::seconds(10);
    return request;
}

Query role_form(const char* action, const Role& role, const std::string& name) {
    Query form{{"Action", action}, {"RoleArn", role.arn}, {"RoleSessionName", name}};
    if (!role.duration.empty()) {
        form.emplace_back("DurationSeconds", role.duration);
    }
    if (!role.external_id.empty()) {
        form.emplace_back("ExternalId", role.external_id);
    }
    return form;
}

std::string session_name(const Role& role, const Clock& clock) {
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now().time_since_epoch());
    return role.session_name.empty() ? format("ckptfs-{}", now.count()) : role.session_name;
}

Error refusal(const std::string& what, const HttpResponse& answer) {
    const auto body = s3::parse_error_body(answer.body);
    Error error;
    error.errno_value = EACCES;
    error.retryable = is_passing(answer.status);
    error.message = body ? format("{}: {}: {}", what, escaped(body->code), escaped(body->message))
                         : format("{}: HTTP status {}", what, answer.status);
    return error;
}

// For a time that is off by 15 minutes the service reports a wrong signature, as for a wrong key.
bool is_of_the_clock(const HttpResponse& answer, WallTime server_time, WallTime ours) {
    const auto body = s3::parse_error_body(answer.body);
    if (!body) {
        return false;
    }
    s3::FailedRequest failed;
    failed.operation = "AssumeRole";
    failed.status = answer.status;
    failed.body = *body;
    return s3::recovery_of(s3::store_error(failed)) == s3::Recovery::kCorrectClock ||
           (body->code == "SignatureDoesNotMatch" && std::chrono::abs(server_time - ours) > kWorthATry);
}

// True if the same request may succeed with the time that `clock` has now.
bool correct_clock(const HttpResponse& answer, ClockCorrection& clock) {
    const auto server_time = parse_http_date(answer.header("date"));
    if (!server_time || !is_of_the_clock(answer, *server_time, clock.now())) {
        return false;
    }
    if (const auto corrected = clock.take(*server_time); corrected.is_first) {
        log_warning(
            format("this machine's clock differs from that of the AWS Security Token Service by {} s; requests "
                   "are signed with the service's time: synchronise it",
                   corrected.by.count()));
    }
    return true;
}

Result<SharedCredentials> exchange(const SourceContext& context, const std::string& what,
                                   const std::function<HttpRequest(const Url&)>& request, ClockCorrection* clock,
                                   const std::stop_token& stop) {
    const Result<Url> service = parse_url(service_url(context, "STS", "sts", context.region), "AWS_ENDPOINT_URL_STS");
    if (!service) {
        return failure(service.error());
    }
    Result<HttpResponse> answer = ServiceClient(context.transport).ask(request(*service), kAttempts, stop);
    if (answer && answer->status != 200 && clock != nullptr && correct_clock(*answer, *clock)) {
        answer = ServiceClient(context.transport).ask(request(*service), kAttempts, stop);
    }
    if (!answer) {
        answer.error().message = format("{}: {}", what, answer.error().message);
        return failure(std::move(answer.error()));
    }
    if (answer->status != 200) {
        return failure(refusal(what, *answer));
    }
    Result<Credentials> session = s3::parse_assumed_role(answer->body);
    if (!session) {
        return failure(EPROTO, format("{}: the answer of {} holds no session", what, service->authority()));
    }
    return std::make_shared<const Credentials>(std::move(*session));
}

}  // namespace

HttpRequest assume_role_request(const Role& role, const std::string& name, const Url& service,
                                const std::string& region, const Credentials& signer, WallTime time) {
    HttpRequest request = form_request(role_form("AssumeRole", role, name), service);
    request.headers.emplace_back("x-amz-date", basic_iso8601(time));
    if (!signer.session_token.empty()) {
        request.headers.emplace_back("x-amz-security-token", signer.session_token.reveal());
    }
    const std::string path = service.path + '/';
    const std::string hash = hex(sha256(request.body));
    UnsignedRequest to_sign{request.method, path, "", request.headers, hash};
    // Signed here; the transport sends it from the URL.
    to_sign.headers.emplace_back("host", service.authority());
    request.headers.emplace_back("authorization", authorization(to_sign, {time, region, "sts"}, signer));
    return request;
}

HttpRequest assume_role_with_web_identity_request(const Role& role, const std::string& name, const Url& service,
                                                  const Secret& token) {
    Query form = role_form("AssumeRoleWithWebIdentity", role, name);
    form.emplace_back("WebIdentityToken", token.reveal());
    return form_request(std::move(form), service);
}

Result<SharedCredentials> assume_role(const SourceContext& context, const Role& role, const Credentials& signer,
                                      ClockCorrection& clock, const std::stop_token& stop) {
    return exchange(
        context, format("AssumeRole {}", escaped(role.arn)),
        [&](const Url& service) {
            return assume_role_request(role, session_name(role, context.clock), service, context.region, signer,
                                       clock.now());
        },
        &clock, stop);
}

Result<SharedCredentials> assume_role_with_web_identity(const SourceContext& context, const Role& role,
                                                        const Secret& token, const std::stop_token& stop) {
    return exchange(
        context, format("AssumeRoleWithWebIdentity {}", escaped(role.arn)),
        [&](const Url& service) {
            return assume_role_with_web_identity_request(role, session_name(role, context.clock), service, token);
        },
        nullptr, stop);
}

}  // namespace ckptfs
