// SPDX-License-Identifier: Apache-2.0
#include "credentials/provider.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "aws/profile_file.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "credentials/container_source.h"
#include "credentials/instance_source.h"
#include "credentials/profile_source.h"
#include "credentials/refreshing_provider.h"
#include "credentials/simple_sources.h"
#include "credentials/source.h"
#include "credentials/source_chain.h"

namespace ckptfs {
namespace {

class AnonymousProvider final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override { ready(SharedCredentials()); }
    void refuse(const SharedCredentials&) override {}
    std::string source() override { return "none, requests are not signed"; }
};

std::unique_ptr<CredentialSource> make_chain(const StoreConfig& config, const SourceContext& context) {
    const std::string profile = profile_name(config.profile, context.environment);
    std::vector<std::unique_ptr<CredentialSource>> sources;
    if (config.profile.empty()) {
        sources.push_back(std::make_unique<EnvironmentSource>(context.environment));
        sources.push_back(std::make_unique<WebIdentitySource>(context));
    }
    const bool is_named = !config.profile.empty() || context.environment("AWS_PROFILE");
    sources.push_back(std::make_unique<ProfileSource>(context, profile, is_named));
    sources.push_back(std::make_unique<ContainerSource>(context));
    sources.push_back(std::make_unique<InstanceSource>(context));
    return std::make_unique<SourceChain>(
        std::move(sources), format("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add profile {} to {}, or pass "
                                   "--no-sign-request for a public bucket",
                                   escaped(profile), context.files.credentials_path));
}

Status wait_for_first(CredentialsProvider& provider) {
    std::promise<Status> answered;
    provider.get([&answered](Result<SharedCredentials> first) {
        answered.set_value(first ? Status() : failure(std::move(first.error())));
    });
    return answered.get_future().get();
}

}  // namespace

Result<std::unique_ptr<CredentialsProvider>> make_credentials_provider(const StoreConfig& config,
                                                                       const Environment& environment,
                                                                       CredentialDependencies use) {
    if (config.no_sign_request) {
        return std::make_unique<AnonymousProvider>();
    }
    // Otherwise the credentials of another source would be used silently.
    if (!config.credentials_file.empty() && access(config.credentials_file.c_str(), F_OK) != 0) {
        return failure(EACCES,
                       format("--credentials-file {}: {}", escaped(config.credentials_file), std::strerror(errno)));
    }
    const ProfileFiles files = profile_files(environment);
    const Result<Profile> profile = read_profile(files, profile_name(config.profile, environment));
    if (!profile) {
        return failure(profile.error());
    }
    const SourceContext context{use.transport,
                                use.clock,
                                environment,
                                files,
                                region_name(config.region, environment, *profile),
                                setting_of(*profile, "endpoint_url")};
    auto provider = std::make_unique<RefreshingProvider>(make_chain(config, context), use.clock, std::move(use.random));
    if (Status found = wait_for_first(*provider); !found) {
        return failure(std::move(found.error()));
    }
    return provider;
}

}  // namespace ckptfs
