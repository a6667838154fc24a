// SPDX-License-Identifier: Apache-2.0
#include "credentials/provider.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "credentials/environment_source.h"
#include "credentials/profile_source.h"
#include "credentials/refreshing_provider.h"
#include "credentials/source_chain.h"
#include "s3/profile_file.h"

namespace ckptfs {
namespace {

class AnonymousProvider final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override { ready(SharedCredentials()); }
    void refuse(const SharedCredentials&) override {}
};

std::unique_ptr<CredentialSource> make_chain(const StoreConfig& config, const Environment& environment) {
    const ProfileFiles files = profile_files(environment);
    const std::string profile = profile_name(config.profile, environment);
    std::vector<std::unique_ptr<CredentialSource>> sources;
    if (config.profile.empty()) {
        sources.push_back(std::make_unique<EnvironmentSource>(environment));
    }
    sources.push_back(std::make_unique<ProfileSource>(files, profile));
    return std::make_unique<SourceChain>(
        std::move(sources), format("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add profile {} to {}, or pass "
                                   "--no-sign-request for a public bucket",
                                   profile, files.credentials_path));
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
    auto provider =
        std::make_unique<RefreshingProvider>(make_chain(config, environment), use.clock, std::move(use.random));
    if (Status found = wait_for_first(*provider); !found) {
        return failure(std::move(found.error()));
    }
    return provider;
}

}  // namespace ckptfs
