// SPDX-License-Identifier: Apache-2.0
// credential_process of a profile: a program that prints credentials.
//
// Source: "Process credential provider", AWS SDKs and Tools Reference Guide.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "credentials/source.h"

namespace ckptfs {

class ProcessSource final : public CredentialSource {
public:
    // A program may ask a service, or the user.
    static constexpr std::chrono::seconds kTimeLimit{60};

    explicit ProcessSource(std::string command, std::chrono::milliseconds limit = kTimeLimit)
        : command_(std::move(command)), limit_(limit) {}

    [[nodiscard]] std::string name() const override { return "credential_process"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const std::string command_;
    const std::chrono::milliseconds limit_;
};

}  // namespace ckptfs
