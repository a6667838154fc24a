// SPDX-License-Identifier: Apache-2.0
// The role of an Amazon EC2 instance, from its metadata service, version 2.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "credentials/service_client.h"
#include "credentials/source.h"

namespace ckptfs {

// AWS_EC2_METADATA_SERVICE_ENDPOINT, or the address of AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE; without '/' at its end.
// Pure.
[[nodiscard]] std::string metadata_endpoint(const Environment& environment);

class InstanceSource final : public CredentialSource {
public:
    explicit InstanceSource(SourceContext context);

    [[nodiscard]] std::string name() const override;
    // Null if no metadata service answers, or it knows no role; once it has returned credentials, either is an error.
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    [[nodiscard]] HttpRequest request(const char* method, const std::string& path) const;
    [[nodiscard]] Result<std::string> ask(HttpRequest request, const std::stop_token& stop) const;
    [[nodiscard]] Result<std::string> session_token(const std::stop_token& stop) const;
    [[nodiscard]] Result<Credentials> credentials(const std::string& token, const std::stop_token& stop) const;

    const SourceContext context_;
    const std::string endpoint_;
    const std::chrono::milliseconds timeout_;
    const int attempts_;
    bool has_answered_ = false;
};

}  // namespace ckptfs
