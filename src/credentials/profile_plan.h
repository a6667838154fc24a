// SPDX-License-Identifier: Apache-2.0
// From a profile's settings to the steps that lead to its credentials. Pure: files are looked at by `lookup`.
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
    // Of the profile at the end of the chain.
    std::string profile;
    // kKeys.
    Credentials keys;
    // kWebIdentity.
    std::string token_file;
    Role web_role;
    // kSso.
    SsoSettings sso;
    // kProcess.
    std::string command;
    // Assumed one after the other with what the one before gave.
    std::vector<Role> roles;
};

struct ProfileLookup {
    std::function<Result<Profile>(const std::string& name)> profile;
    std::function<Result<Profile>(const std::string& name)> sso_session;
};

// In a profile a role comes before web identity, IAM Identity Center, keys and credential_process, as in the AWS CLI; a
// profile that another one names as its source_profile gives its keys where it has some. Fails with one line for what
// contradicts itself, is incomplete, goes in a circle, or needs a code of a person.
[[nodiscard]] Result<ProfilePlan> plan_profile(const std::string& name, const ProfileLookup& lookup);

}  // namespace ckptfs
