// SPDX-License-Identifier: Apache-2.0
#include "credentials/container_source.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>

#include "aws/url.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "credentials/credential_json.h"
#include "credentials/secret_file.h"
#include "credentials/service_client.h"

namespace ckptfs {
namespace {

// As in the AWS SDKs.
constexpr std::chrono::seconds kTimeout{2};
constexpr int kAttempts = 3;

constexpr const char* kEcsEndpoint = "http://169.254.170.2";
constexpr const char* kVariable = "AWS_CONTAINER_CREDENTIALS_FULL_URI";

bool may_be_asked_in_the_open(std::string_view host) {
    // Amazon ECS, and EKS Pod Identity twice.
    constexpr std::array<std::string_view, 3> kServices = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    // Digits only: a name that merely begins with 127. would be looked up.
    const bool loopback_address =
        host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
    return loopback_address || host == "localhost" || host == "[::1]" ||
           std::find(kServices.begin(), kServices.end(), host) != kServices.end();
}

}  // namespace

Result<std::string> container_url(const std::optional<std::string>& relative_uri,
                                  const std::optional<std::string>& full_uri) {
    if (relative_uri) {
        if (!relative_uri->starts_with('/')) {
            return failure(EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a /");
        }
        return kEcsEndpoint + *relative_uri;
    }
    if (!full_uri) {
        return std::string();
    }
    const Result<Url> url = parse_url(std::string_view(*full_uri).substr(0, full_uri->find('?')), kVariable);
    if (!url) {
        return failure(url.error());
    }
    if (url->scheme != "https" && !may_be_asked_in_the_open(url->host)) {
        return failure(EINVAL, format("{}: {} must use https; http is allowed only for this machine, 169.254.170.2, "
                                      "169.254.170.23 and [fd00:ec2::23]",
                                      kVariable, escaped(url->host)));
    }
    return *full_uri;
}

Result<Secret> ContainerSource::authorization_token() const {
    if (const auto file = context_.environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
        return read_secret_file(*file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    }
    return Secret(context_.environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or(""));
}

Result<SharedCredentials> ContainerSource::fetch(const std::stop_token& stop) {
    const Result<std::string> url =
        container_url(context_.environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), context_.environment(kVariable));
    if (!url) {
        return failure(url.error());
    }
    if (url->empty()) {
        return SharedCredentials();
    }
    const Result<Secret> token = authorization_token();
    if (!token) {
        return failure(token.error());
    }
    HttpRequest request;
    request.method = "GET";
    request.url = *url;
    request.headers.emplace_back("accept", "application/json");
    if (!token->empty()) {
        request.headers.emplace_back("authorization", token->reveal());
    }
    request.bypasses_proxy = true;
    request.connect_timeout = kTimeout;
    request.stall_timeout = kTimeout;
    const auto answer = ServiceClient(context_.transport).ask(request, kAttempts, stop);
    if (!answer) {
        Error error = answer.error();
        error.message = format("{}: {}", name(), error.message);
        return failure(std::move(error));
    }
    Result<Credentials> credentials =
        answer->status == 200
            ? parse_metadata_credentials(answer->body)
            : failure(EACCES, format("HTTP status {}: {}", answer->status, failure_text(answer->body)));
    if (!credentials) {
        credentials.error().retryable = is_passing(answer->status);
        credentials.error().message = format("{}: {}", name(), credentials.error().message);
        return failure(std::move(credentials.error()));
    }
    return std::make_shared<const Credentials>(std::move(*credentials));
}

}  // namespace ckptfs
