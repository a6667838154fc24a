// SPDX-License-Identifier: Apache-2.0
#include "credentials/instance_source.h"

#include <algorithm>
#include <memory>

#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "credentials/credential_json.h"

namespace ckptfs {
namespace {

// Amazon EC2 User Guide, "Use the Instance Metadata Service": the addresses, the paths, and the longest life of a
// token.
constexpr const char* kEndpoint = "http://169.254.169.254";
constexpr const char* kEndpointIpv6 = "http://[fd00:ec2::254]";
constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kRolesPath = "/latest/meta-data/iam/security-credentials/";
constexpr const char* kTokenSeconds = "21600";
// As in the AWS CLI: a machine that is no instance must not be held up.
constexpr int kDefaultSeconds = 1;
constexpr int kDefaultAttempts = 1;
constexpr int kMostSeconds = 60;

int number_of(const Environment& environment, const char* name, int otherwise) {
    const std::string text = environment(name).value_or("");
    return std::clamp(whole_number<int>(text).value_or(otherwise), 1, kMostSeconds);
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find_first_of("\r\n"));
}

}  // namespace

std::string metadata_endpoint(const Environment& environment) {
    const bool ipv6 = lower_case(environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("")) == "ipv6";
    std::string endpoint = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or(ipv6 ? kEndpointIpv6 : kEndpoint);
    while (endpoint.ends_with('/')) {
        endpoint.pop_back();
    }
    return endpoint;
}

InstanceSource::InstanceSource(SourceContext context)
    : context_(std::move(context)),
      endpoint_(metadata_endpoint(context_.environment)),
      timeout_(std::chrono::seconds(number_of(context_.environment, "AWS_METADATA_SERVICE_TIMEOUT", kDefaultSeconds))),
      attempts_(number_of(context_.environment, "AWS_METADATA_SERVICE_NUM_ATTEMPTS", kDefaultAttempts)) {}

std::string InstanceSource::name() const {
    return format("the instance metadata of {}", escaped(endpoint_));
}

HttpRequest InstanceSource::request(const char* method, const std::string& path) const {
    HttpRequest request;
    request.method = method;
    request.url = endpoint_ + path;
    request.bypasses_proxy = true;
    request.connect_timeout = timeout_;
    request.stall_timeout = timeout_;
    return request;
}

Result<std::string> InstanceSource::ask(HttpRequest request, const std::stop_token& stop) const {
    Result<HttpResponse> answer = ServiceClient(context_.transport).ask(request, attempts_, stop);
    if (!answer) {
        return failure(std::move(answer.error()));
    }
    if (answer->status != 200) {
        Error error;
        error.errno_value = answer->status == 404 ? ENOENT : EACCES;
        error.retryable = is_passing(answer->status);
        error.message = format("HTTP status {}", answer->status);
        return failure(std::move(error));
    }
    return std::move(answer->body);
}

Result<std::string> InstanceSource::session_token(const std::stop_token& stop) const {
    HttpRequest put = request("PUT", kTokenPath);
    put.headers.emplace_back("x-aws-ec2-metadata-token-ttl-seconds", kTokenSeconds);
    auto token = ask(std::move(put), stop);
    return token ? Result<std::string>(first_line(*token)) : token;
}

Result<Credentials> InstanceSource::credentials(const std::string& token, const std::stop_token& stop) const {
    const auto get = [&](const std::string& path) {
        HttpRequest wanted = request("GET", path);
        wanted.headers.emplace_back("x-aws-ec2-metadata-token", token);
        return ask(std::move(wanted), stop);
    };
    const auto roles = get(kRolesPath);
    if (!roles || first_line(*roles).empty()) {
        return failure(roles ? failure(ENOENT, "the instance has no role").value() : roles.error());
    }
    const auto body = get(kRolesPath + first_line(*roles));
    return body ? parse_metadata_credentials(*body) : failure(body.error());
}

Result<SharedCredentials> InstanceSource::fetch(const std::stop_token& stop) {
    if (lower_case(context_.environment("AWS_EC2_METADATA_DISABLED").value_or("")) == "true") {
        return SharedCredentials();
    }
    const Result<std::string> token = session_token(stop);
    if (!token && !has_answered_) {
        log_debug(format("{}: {}", name(), token.error().message));
        return SharedCredentials();
    }
    Result<Credentials> found = token ? credentials(*token, stop) : failure(token.error());
    if (!found && found.error().errno_value == ENOENT && !has_answered_) {
        return SharedCredentials();
    }
    if (!found) {
        found.error().errno_value = EACCES;
        found.error().message = format("{}: {}", name(), found.error().message);
        return failure(std::move(found.error()));
    }
    has_answered_ = true;
    return std::make_shared<const Credentials>(std::move(*found));
}

}  // namespace ckptfs
