// SPDX-License-Identifier: Apache-2.0
// From a profile's settings to the steps that lead to its credentials. Pure: `lookup` reads the files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "aws/credentials.h"
#include "aws/profile_file.h"
#include "ckptfs/status.h"
#include "credentials/security_token_service.h"
#include "credentials/sso_source.h"

namespace ckptfs {

enum class ProfileOrigin : std::uint8_t {
    // The profile has no credentials in it, or there is no such profile.
    kNone,
    kKeys,
    kEnvironment,
    kContainer,
    kInstance,
    kWebIdentity,
    kSso,
    kProcess,
};

struct ProfilePlan {
    ProfileOrigin origin = ProfileOrigin::kNone;
    // Name of the profile at the end of the chain.
    std::string profile;
    // For kKeys.
    Credentials keys;
    // For kWebIdentity.
    std::string token_file;
    Role web_role;
    // For kSso.
    SsoSettings sso;
    // For kProcess.
    std::string command;
    // To be assumed one after the other, each with the credentials of the one before.
    std::vector<Role> roles;
};

struct ProfileLookup {
    std::function<Result<Profile>(const std::string& name)> profile;
    std::function<Result<Profile>(const std::string& name)> sso_session;
};

// In a profile a role (by web identity, if web_identity_token_file is set) comes before IAM Identity Center, keys and
// credential_process, as in the AWS CLI; of a profile that another one names as its source_profile, keys come first.
// Fails with one line for what contradicts itself, is incomplete, goes in a circle, or needs a code from a person.
[[nodiscard]] Result<ProfilePlan> plan_profile(const std::string& name, const ProfileLookup& lookup);

}  // namespace ckptfs
