// SPDX-License-Identifier: Apache-2.0
#include "credentials/profile_source.h"

#include <sys/stat.h>

#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "credentials/container_source.h"
#include "credentials/instance_source.h"
#include "credentials/security_token_service.h"
#include "credentials/simple_sources.h"
#include "credentials/sso_source.h"

namespace ckptfs {

ProfileSource::ProfileSource(const SourceContext& context, std::string profile, bool must_exist)
    : context_(context), profile_(std::move(profile)), must_exist_(must_exist), service_clock_(context.clock) {}

std::string ProfileSource::name() const {
    return format("profile {} of {} and {}", escaped(profile_), context_.files.credentials_path,
                  context_.files.config_path);
}

bool is_open_to_others(unsigned mode) {
    return (mode & (S_IRGRP | S_IROTH)) != 0;
}

void ProfileSource::warn_of_readers() {
    const std::string& path = context_.files.credentials_path;
    struct stat status {};
    if (!warned_ && stat(path.c_str(), &status) == 0 && is_open_to_others(status.st_mode)) {
        warned_ = true;
        log_warning(format("other users may read the credentials in {}: chmod 600 {}", escaped(path), escaped(path)));
    }
}

std::unique_ptr<CredentialSource> ProfileSource::make_origin(const ProfilePlan& plan) {
    switch (plan.origin) {
        case ProfileOrigin::kEnvironment:
            return std::make_unique<EnvironmentSource>(context_.environment);
        case ProfileOrigin::kContainer:
            return std::make_unique<ContainerSource>(context_);
        case ProfileOrigin::kInstance:
            return std::make_unique<InstanceSource>(context_);
        case ProfileOrigin::kWebIdentity:
            return std::make_unique<WebIdentitySource>(context_, plan.web_role, plan.token_file);
        case ProfileOrigin::kSso:
            if (!login_ || !login_->is_of(plan.sso, plan.profile)) {
                login_ = std::make_shared<SsoLogin>(context_, plan.sso, plan.profile);
            }
            return std::make_unique<SsoSource>(context_, plan.sso, plan.profile, login_);
        case ProfileOrigin::kProcess:
            return std::make_unique<ProcessSource>(plan.command);
        case ProfileOrigin::kKeys:
        case ProfileOrigin::kNone:
            break;
    }
    return nullptr;
}

Result<SharedCredentials> ProfileSource::fetch_origin(const ProfilePlan& plan, const std::stop_token& stop) {
    if (plan.origin == ProfileOrigin::kKeys) {
        warn_of_readers();
        return std::make_shared<const Credentials>(plan.keys);
    }
    const auto origin = make_origin(plan);
    Result<SharedCredentials> found = origin->fetch(stop);
    if (found && !*found) {
        return failure(EACCES, format("profile {}: {} has no credentials", escaped(plan.profile), origin->name()));
    }
    return found;
}

Result<SharedCredentials> ProfileSource::fetch(const std::stop_token& stop) {
    const auto plan =
        plan_profile(profile_, {[this](const std::string& name) { return read_profile(context_.files, name); },
                                [this](const std::string& name) { return read_sso_session(context_.files, name); }});
    if (!plan) {
        return failure(plan.error());
    }
    if (plan->origin == ProfileOrigin::kNone) {
        const Result<Profile> settings = read_profile(context_.files, profile_);
        if (must_exist_ && settings && settings->empty()) {
            return failure(EACCES, format("there is no profile {} in {}", escaped(profile_), searched(context_.files)));
        }
        if (context_.files.credentials_named && is_missing(context_.files.credentials_path)) {
            return failure(EACCES, format("AWS_SHARED_CREDENTIALS_FILE is {}, and there is no such file",
                                          escaped(context_.files.credentials_path)));
        }
        return SharedCredentials();
    }
    Result<SharedCredentials> found = fetch_origin(*plan, stop);
    for (const Role& role : plan->roles) {
        if (!found) {
            break;
        }
        const SharedCredentials signer = *found;
        found = assume_role(context_, role, *signer, service_clock_, stop);
    }
    return found;
}

}  // namespace ckptfs
