// SPDX-License-Identifier: Apache-2.0
// The endpoint that a container's orchestrator names: Amazon ECS, and EKS Pod Identity.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "credentials/source.h"

namespace ckptfs {

// The URL to ask; empty if none of the variables is set. Plain HTTP goes to this machine and to the addresses of the
// two services only (AWS SDKs and Tools Reference Guide, "Container credential provider"): a token must not leave the
// machine unencrypted. Pure.
[[nodiscard]] Result<std::string> container_url(const std::optional<std::string>& relative_uri,
                                                const std::optional<std::string>& full_uri);

class ContainerSource final : public CredentialSource {
public:
    explicit ContainerSource(SourceContext context) : context_(std::move(context)) {}

    [[nodiscard]] std::string name() const override {
        return "the container's endpoint (AWS_CONTAINER_CREDENTIALS_FULL_URI)";
    }
    // Reads the authorization token's file every time.
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    // Empty if none is configured.
    [[nodiscard]] Result<Secret> authorization_token() const;

    const SourceContext context_;
};

}  // namespace ckptfs
