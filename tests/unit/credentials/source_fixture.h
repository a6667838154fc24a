// SPDX-License-Identifier: Apache-2.0
// What sources ask: a home directory, an environment, a clock, services.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "credentials/source.h"
#include "support/manual_clock.h"
#include "support/scripted_transport.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {

class SourceTest : public ::testing::Test {
protected:
    SourceTest() {
        variables_["HOME"] = home_.string();
        std::filesystem::create_directories(home_ / ".aws/sso/cache");
    }

    // Below the home directory; the path.
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(home_ / name) << text;
        std::filesystem::permissions(home_ / name, std::filesystem::perms(0600));
        return (home_ / name).string();
    }

    [[nodiscard]] Environment environment() const {
        return [this](const char* name) -> std::optional<std::string> {
            const auto found = variables_.find(name);
            return found == variables_.end() ? std::nullopt : std::optional(found->second);
        };
    }

    [[nodiscard]] SourceContext context() {
        return {transport_, clock_, environment(), profile_files(environment()), "eu-west-1", ""};
    }

    static Result<SharedCredentials> fetch(CredentialSource& source) { return source.fetch(std::stop_token()); }
    static Result<SharedCredentials> fetch(CredentialSource&& source) { return source.fetch(std::stop_token()); }

    static std::string message(const Result<SharedCredentials>& answer) {
        return answer ? "no error" : answer.error().message;
    }

    const TemporaryDirectory temporary_;
    const std::filesystem::path home_ = temporary_.path();
    std::map<std::string, std::string> variables_;
    ManualClock clock_;
    ScriptedTransport transport_;
};

inline constexpr const char* kMetadataCredentials =
    R"({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIA1", "SecretAccessKey": "secret1",
        "Token": "token1", "Expiration": "2030-01-31T12:00:00Z"})";

inline std::string assumed_role(const std::string& action, const std::string& id) {
    return "<" + action + "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><" + action +
           "Result><AssumedRoleUser><Arn>arn</Arn></AssumedRoleUser><Credentials><AccessKeyId>" + id +
           "</AccessKeyId><SecretAccessKey>s-" + id + "</SecretAccessKey><SessionToken>t-" + id +
           "</SessionToken><Expiration>2030-01-31T12:00:00Z</Expiration></Credentials></" + action +
           "Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></" + action + "Response>";
}

}  // namespace ckptfs::testing
