// SPDX-License-Identifier: Apache-2.0
#include "credentials/environment_source.h"

namespace ckptfs {

Result<SharedCredentials> EnvironmentSource::fetch(const std::stop_token& /*stop*/) {
    const auto id = environment_("AWS_ACCESS_KEY_ID");
    const auto secret = environment_("AWS_SECRET_ACCESS_KEY");
    if (id.has_value() != secret.has_value()) {
        return failure(EACCES, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set together");
    }
    if (!id) {
        return SharedCredentials();
    }
    return std::make_shared<const Credentials>(
        Credentials{*id, Secret(*secret), Secret(environment_("AWS_SESSION_TOKEN").value_or("")), std::nullopt});
}

}  // namespace ckptfs
