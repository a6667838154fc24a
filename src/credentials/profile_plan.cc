// SPDX-License-Identifier: Apache-2.0
#include "credentials/profile_plan.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

Failure wrong(const std::string& profile, const std::string& what) {
    return failure(EACCES, format("profile {}: {}", escaped(profile), what));
}

bool has_keys(const Profile& settings) {
    return settings.contains("aws_access_key_id") || settings.contains("aws_secret_access_key");
}

Role role_of(const Profile& settings) {
    return {setting_of(settings, "role_arn"), setting_of(settings, "role_session_name"),
            setting_of(settings, "external_id"), setting_of(settings, "duration_seconds")};
}

bool is_number(const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
}

class Planner {
public:
    explicit Planner(const ProfileLookup& lookup) : lookup_(lookup) {}

    Result<ProfilePlan> plan(const std::string& name, bool is_source) {
        const Result<Profile> settings = lookup_.profile(name);
        if (!settings) {
            return failure(settings.error());
        }
        visited_.push_back(name);
        ProfilePlan plan;
        plan.profile = name;
        if (is_source && has_keys(*settings)) {
            return with_keys(std::move(plan), *settings);
        }
        if (settings->contains("role_arn")) {
            return with_role(std::move(plan), *settings);
        }
        if (settings->contains("sso_session") || settings->contains("sso_start_url")) {
            return with_sso(std::move(plan), *settings);
        }
        if (has_keys(*settings)) {
            return with_keys(std::move(plan), *settings);
        }
        if (settings->contains("credential_process")) {
            plan.origin = ProfileOrigin::kProcess;
            plan.command = setting_of(*settings, "credential_process");
            return plan;
        }
        if (is_source) {
            return wrong(name, settings->empty() ? "there is no such profile" : "there are no credentials in it");
        }
        return plan;
    }

private:
    static Result<ProfilePlan> with_keys(ProfilePlan plan, const Profile& settings) {
        plan.origin = ProfileOrigin::kKeys;
        plan.keys = {setting_of(settings, "aws_access_key_id"), Secret(setting_of(settings, "aws_secret_access_key")),
                     Secret(setting_of(settings, "aws_session_token")), std::nullopt};
        if (plan.keys.access_key_id.empty() || plan.keys.secret_access_key.empty()) {
            return wrong(plan.profile, "aws_access_key_id and aws_secret_access_key must be set together");
        }
        return plan;
    }

    Result<ProfilePlan> with_role(ProfilePlan plan, const Profile& settings) {
        const Role role = role_of(settings);
        if (!is_number(role.duration)) {
            return wrong(plan.profile, "duration_seconds is not a number");
        }
        if (settings.contains("web_identity_token_file")) {
            plan.origin = ProfileOrigin::kWebIdentity;
            plan.token_file = setting_of(settings, "web_identity_token_file");
            plan.web_role = role;
            return plan;
        }
        if (settings.contains("mfa_serial")) {
            return wrong(plan.profile,
                         "role_arn with mfa_serial needs a code, and a mount cannot ask for one; name a profile that "
                         "holds a session, as aws sts get-session-token gives it");
        }
        const std::string source = setting_of(settings, "source_profile");
        const std::string service = setting_of(settings, "credential_source");
        if (source.empty() == service.empty()) {
            return wrong(plan.profile, source.empty() ? "role_arn needs source_profile, credential_source or "
                                                        "web_identity_token_file"
                                                      : "source_profile and credential_source exclude each other");
        }
        Result<ProfilePlan> origin =
            source.empty() ? from_service(plan.profile, service) : from_profile(plan.profile, source, settings);
        if (origin) {
            origin->roles.push_back(role);
        }
        return origin;
    }

    static Result<ProfilePlan> from_service(const std::string& name, const std::string& service) {
        ProfilePlan plan;
        plan.profile = name;
        if (service == "Environment") {
            plan.origin = ProfileOrigin::kEnvironment;
        } else if (service == "EcsContainer") {
            plan.origin = ProfileOrigin::kContainer;
        } else if (service == "Ec2InstanceMetadata") {
            plan.origin = ProfileOrigin::kInstance;
        } else {
            return wrong(name, format("credential_source {} is none of Environment, EcsContainer and "
                                      "Ec2InstanceMetadata",
                                      escaped(service)));
        }
        return plan;
    }

    Result<ProfilePlan> from_profile(const std::string& name, const std::string& source, const Profile& settings) {
        if (source == name && has_keys(settings)) {
            ProfilePlan own;
            own.profile = name;
            return with_keys(std::move(own), settings);
        }
        if (std::find(visited_.begin(), visited_.end(), source) != visited_.end()) {
            return wrong(name, format("source_profile {} leads back to itself", escaped(source)));
        }
        return plan(source, true);
    }

    Result<ProfilePlan> with_sso(ProfilePlan plan, const Profile& settings) {
        plan.origin = ProfileOrigin::kSso;
        plan.sso.account_id = setting_of(settings, "sso_account_id");
        plan.sso.role_name = setting_of(settings, "sso_role_name");
        plan.sso.session = setting_of(settings, "sso_session");
        Profile where = settings;
        if (!plan.sso.session.empty()) {
            Result<Profile> session = lookup_.sso_session(plan.sso.session);
            if (!session) {
                return failure(session.error());
            }
            where = std::move(*session);
        }
        plan.sso.start_url = setting_of(where, "sso_start_url");
        plan.sso.region = setting_of(where, "sso_region");
        if (plan.sso.start_url.empty() || plan.sso.region.empty() || plan.sso.account_id.empty() ||
            plan.sso.role_name.empty()) {
            return wrong(plan.profile,
                         "it needs sso_account_id, sso_role_name, and, in it or in its sso_session, sso_start_url and "
                         "sso_region");
        }
        return plan;
    }

    const ProfileLookup& lookup_;
    std::vector<std::string> visited_;
};

}  // namespace

Result<ProfilePlan> plan_profile(const std::string& name, const ProfileLookup& lookup) {
    return Planner(lookup).plan(name, false);
}

}  // namespace ckptfs
