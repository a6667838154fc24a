// SPDX-License-Identifier: Apache-2.0
#include "credentials/profile_source.h"

#include <utility>

#include "base/text.h"

namespace ckptfs {

ProfileSource::ProfileSource(ProfileFiles files, std::string profile)
    : files_(std::move(files)), profile_(std::move(profile)) {}

std::string ProfileSource::name() const {
    return format("profile {} of {} and {}", profile_, files_.credentials_path, files_.config_path);
}

Result<SharedCredentials> ProfileSource::fetch(const std::stop_token& /*stop*/) {
    const Result<Profile> profile = read_profile(files_, profile_);
    if (!profile) {
        return failure(profile.error());
    }
    const std::string id = setting_of(*profile, "aws_access_key_id");
    const std::string secret = setting_of(*profile, "aws_secret_access_key");
    if (id.empty() != secret.empty()) {
        return failure(
            EACCES, format("profile {}: aws_access_key_id and aws_secret_access_key must be set together", profile_));
    }
    if (id.empty()) {
        return SharedCredentials();
    }
    return std::make_shared<const Credentials>(
        Credentials{id, Secret(secret), Secret(setting_of(*profile, "aws_session_token")), std::nullopt});
}

}  // namespace ckptfs
