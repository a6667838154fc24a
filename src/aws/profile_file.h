// SPDX-License-Identifier: Apache-2.0
// The AWS tools' shared files, ~/.aws/credentials and ~/.aws/config.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/environment.h"
#include "ckptfs/status.h"

namespace ckptfs {

// Settings of one profile; names in lower case, values never empty.
using Profile = std::map<std::string, std::string>;

struct ProfileFiles {
    std::string credentials_path;
    std::string config_path;
    // The environment names the file. One that exists has to be readable, unless it is not named and lies in a home
    // that this process may not enter: then it counts as missing.
    bool credentials_named = false;
    bool config_named = false;
};

// "A and B", and which of them does not exist: for messages.
[[nodiscard]] std::string searched(const ProfileFiles& files);
[[nodiscard]] bool is_missing(const std::string& path);
[[nodiscard]] ProfileFiles profile_files(const Environment& environment);
// AWS_PROFILE, or "default".
[[nodiscard]] std::string profile_name(const std::string& configured, const Environment& environment);
// Both files' settings of the profile, those of the credentials file first. Empty if neither file has it; an Error if a
// file exists and cannot be read.
[[nodiscard]] Result<Profile> read_profile(const ProfileFiles& files, const std::string& name);
// The [sso-session NAME] of the config file; empty if there is none.
[[nodiscard]] Result<Profile> read_sso_session(const ProfileFiles& files, const std::string& name);
// The configured one, AWS_REGION, AWS_DEFAULT_REGION, the profile's region, else us-east-1.
[[nodiscard]] std::string region_name(const std::string& configured, const Environment& environment,
                                      const Profile& profile);
// The value of a setting; empty if the profile does not have it.
[[nodiscard]] std::string setting_of(const Profile& profile, const std::string& name);

}  // namespace ckptfs
