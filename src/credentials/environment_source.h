// SPDX-License-Identifier: Apache-2.0
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
#pragma once

#include <utility>

#include "base/environment.h"
#include "credentials/source.h"

namespace ckptfs {

class EnvironmentSource final : public CredentialSource {
public:
    explicit EnvironmentSource(Environment environment) : environment_(std::move(environment)) {}

    [[nodiscard]] std::string name() const override { return "the environment (AWS_ACCESS_KEY_ID)"; }
    [[nodiscard]] Result<SharedCredentials> fetch(const std::stop_token& stop) override;

private:
    const Environment environment_;
};

}  // namespace ckptfs
