// SPDX-License-Identifier: Apache-2.0
#include "s3/credentials.h"

#include <mutex>
#include <utility>

#include "base/text.h"
#include "s3/profile_file.h"

namespace ckptfs {
namespace {

class AnonymousProvider final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override { ready(SharedCredentials()); }
    void refuse(const SharedCredentials&) override {}
};

std::string setting(const Profile& profile, const char* name) {
    const auto found = profile.find(name);
    return found == profile.end() ? std::string() : found->second;
}

Result<SharedCredentials> from_environment(const Environment& environment) {
    const auto id = environment("AWS_ACCESS_KEY_ID");
    const auto secret = environment("AWS_SECRET_ACCESS_KEY");
    if (id.has_value() != secret.has_value()) {
        return failure(EACCES, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set together");
    }
    if (!id) {
        return SharedCredentials();
    }
    return std::make_shared<const Credentials>(
        Credentials{*id, Secret(*secret), Secret(environment("AWS_SESSION_TOKEN").value_or("")), std::nullopt});
}

Result<SharedCredentials> from_files(const ProfileFiles& files, const std::string& profile_name) {
    Result<Profile> profile = read_profile(files, profile_name);
    if (!profile) {
        return failure(std::move(profile.error()));
    }
    const std::string id = setting(*profile, "aws_access_key_id");
    const std::string secret = setting(*profile, "aws_secret_access_key");
    if (id.empty() != secret.empty()) {
        return failure(EACCES, format("profile {}: aws_access_key_id and aws_secret_access_key must be set together",
                                      profile_name));
    }
    if (id.empty()) {
        return SharedCredentials();
    }
    return std::make_shared<const Credentials>(
        Credentials{id, Secret(secret), Secret(setting(*profile, "aws_session_token")), std::nullopt});
}

// The shared files are small and local: they are read where credentials are asked for, once, and again only after the
// store has refused what they said.
class SourceProvider final : public CredentialsProvider {
public:
    using Load = std::function<Result<SharedCredentials>()>;

    explicit SourceProvider(Load load) : load_(std::move(load)) {}

    void get(CredentialsReady ready) override { ready(current()); }

    void refuse(const SharedCredentials& credentials) override {
        const std::lock_guard lock(mutex_);
        if (loaded_ == credentials) {
            loaded_ = nullptr;
        }
    }

private:
    Result<SharedCredentials> current() {
        const std::lock_guard lock(mutex_);
        if (!loaded_) {
            Result<SharedCredentials> loaded = load_();
            if (!loaded) {
                return loaded;
            }
            loaded_ = std::move(*loaded);
        }
        return loaded_;
    }

    const Load load_;
    std::mutex mutex_;
    SharedCredentials loaded_;  // guarded by mutex_
};

Error none_found(const ProfileFiles& files, const std::string& profile) {
    Error error;
    error.errno_value = EACCES;
    error.message = format(
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add profile {} to {}, or pass "
        "--no-sign-request for a public bucket",
        profile, files.credentials_path);
    return error;
}

}  // namespace

Result<std::unique_ptr<CredentialsProvider>> make_credentials_provider(const StoreConfig& config,
                                                                       const Environment& environment) {
    if (config.no_sign_request) {
        return std::make_unique<AnonymousProvider>();
    }
    const ProfileFiles files = profile_files(environment);
    const std::string profile = profile_name(config.profile, environment);
    const bool profile_first = !config.profile.empty();
    SourceProvider::Load load = [=]() -> Result<SharedCredentials> {
        Result<SharedCredentials> found = profile_first ? from_files(files, profile) : from_environment(environment);
        if (found && !*found) {
            found = profile_first ? SharedCredentials() : from_files(files, profile);
        }
        if (found && !*found) {
            return failure(none_found(files, profile));
        }
        return found;
    };
    auto provider = std::make_unique<SourceProvider>(std::move(load));
    Status usable;
    provider->get([&usable](Result<SharedCredentials> first) {
        if (!first) {
            usable = failure(std::move(first.error()));
        }
    });
    if (!usable) {
        return failure(std::move(usable.error()));
    }
    return provider;
}

}  // namespace ckptfs
