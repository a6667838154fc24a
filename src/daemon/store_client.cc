// SPDX-License-Identifier: Apache-2.0
#include "daemon/store_client.h"

#include <pwd.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "aws/profile_file.h"
#include "base/environment.h"
#include "base/random_numbers.h"
#include "base/text.h"
#include "credentials/provider.h"
#include "http/curl_transport.h"

namespace ckptfs {
namespace {

// A mount at boot has no HOME, and takes the credentials file from an option.
Environment environment_of(const StoreConfig& config) {
    return [file = config.credentials_file, process = process_environment()](const char* name) {
        const std::string_view asked = name;
        auto value = process(name);
        if (asked == "AWS_SHARED_CREDENTIALS_FILE" && !file.empty()) {
            value = file;
        } else if (asked == "HOME" && !value) {
            const passwd* user = getpwuid(geteuid());
            value = user == nullptr ? value : std::optional<std::string>(user->pw_dir);
        }
        return value;
    };
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::create(const StoreConfig& config, Timer& timer, Clock& clock,
                                                         Executor& executor, s3::AttemptObserver* observer) {
    std::unique_ptr<StoreClient> client(new StoreClient(timer, clock, executor));
    client->observer_ = observer;
    if (!config.access_log.empty()) {
        auto log = s3::AccessLog::create(config.access_log);
        if (!log) {
            return failure(EINVAL, format("--access-log: {}", log.error().message));
        }
        client->access_log_ = std::move(*log);
    }
    CurlTransportOptions options;
    options.threads = config.http_threads;
    options.max_connections = config.connections();
    options.light_connections = config.light_connections();
    options.ca_bundle = config.ca_bundle;
    auto transport = make_curl_transport(options);
    if (!transport) {
        return failure(transport.error());
    }
    client->transport_ = std::move(*transport);
    auto credentials =
        make_credentials_provider(config, environment_of(config), {*client->transport_, clock, random_numbers()});
    if (!credentials) {
        return failure(credentials.error());
    }
    client->credentials_ = std::move(*credentials);
    auto store = client->make_store(config);
    if (!store) {
        return failure(store.error());
    }
    client->store_ = std::move(*store);
    return client;
}

Result<s3::Endpoint> StoreClient::endpoint(const StoreConfig& config) {
    const Environment environment = environment_of(config);
    const auto profile = read_profile(profile_files(environment), profile_name(config.profile, environment));
    return profile ? s3::resolve_endpoint(config, environment, *profile) : failure(profile.error());
}

void StoreClient::stop() {
    // First, because requests that wait for credentials would hold up the store.
    credentials_->stop();
    store_->stop();
}

Result<std::unique_ptr<s3::S3Store>> StoreClient::make_store(const StoreConfig& config) {
    std::vector<s3::AttemptObserver*> observers{&statistics_, &store_clock_};
    if (access_log_ != nullptr) {
        observers.push_back(access_log_.get());
    }
    if (observer_ != nullptr) {
        observers.push_back(observer_);
    }
    return s3::make_s3_store(
        config, environment_of(config),
        {*transport_, timer_, clock_, executor_, *credentials_, random_numbers(), std::move(observers)});
}

}  // namespace ckptfs
