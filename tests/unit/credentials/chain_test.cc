// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>

#include "base/system_clock.h"
#include "credentials/provider.h"
#include "s3/profile_file.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public ::testing::Test {
protected:
    CredentialsTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "ckptfs-credentials-XXXXXX").string();
        home_ = mkdtemp(pattern.data());
        variables_["HOME"] = home_.string();
        std::filesystem::create_directory(home_ / ".aws");
    }
    ~CredentialsTest() override { std::filesystem::remove_all(home_); }

    void write(const std::string& name, const std::string& text) const { std::ofstream(home_ / ".aws" / name) << text; }

    [[nodiscard]] Environment environment() const {
        return [this](const char* name) -> std::optional<std::string> {
            const auto found = variables_.find(name);
            return found == variables_.end() ? std::nullopt : std::optional(found->second);
        };
    }

    [[nodiscard]] Result<std::unique_ptr<CredentialsProvider>> make() const {
        return make_credentials_provider(config_, environment(), {clock_, [] { return 0.5; }});
    }

    [[nodiscard]] Result<SharedCredentials> resolve() const {
        auto provider = make();
        return provider ? ask(**provider) : failure(std::move(provider.error()));
    }

    static Result<SharedCredentials> ask(CredentialsProvider& provider) {
        std::promise<Result<SharedCredentials>> answered;
        provider.get(
            [&answered](Result<SharedCredentials> credentials) { answered.set_value(std::move(credentials)); });
        return answered.get_future().get();
    }

    SystemClock clock_;
    std::filesystem::path home_;
    std::map<std::string, std::string> variables_;
    StoreConfig config_;
};

TEST_F(CredentialsTest, FromTheEnvironment) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
    variables_["AWS_SESSION_TOKEN"] = "token";
    write("credentials", "[default]\naws_access_key_id = other\naws_secret_access_key = other\n");
    const auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->access_key_id, "id");
    EXPECT_EQ((*credentials)->secret_access_key.reveal(), "secret");
    EXPECT_EQ((*credentials)->session_token.reveal(), "token");
}

TEST_F(CredentialsTest, FromTheCredentialsFile) {
    write("credentials",
          "[default]\naws_access_key_id = id\naws_secret_access_key = a/b+c=\n"
          "[other]\naws_access_key_id=id2\naws_secret_access_key=s2\naws_session_token=t2\n");
    auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->secret_access_key.reveal(), "a/b+c=");
    variables_["AWS_PROFILE"] = "other";
    credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->access_key_id, "id2");
    EXPECT_EQ((*credentials)->session_token.reveal(), "t2");
}

TEST_F(CredentialsTest, FromTheConfigFile) {
    write("config",
          "[default]\nregion = eu-west-1\n[profile train]\naws_access_key_id = id\naws_secret_access_key = s\n");
    config_.profile = "train";
    const auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->access_key_id, "id");
    EXPECT_EQ(read_profile(profile_files(environment()), "default")->at("region"), "eu-west-1");
}

TEST_F(CredentialsTest, AProfileOnTheCommandLineComesBeforeTheEnvironment) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
    write("credentials", "[train]\naws_access_key_id = other\naws_secret_access_key = s\n");
    config_.profile = "train";
    EXPECT_EQ((*resolve())->access_key_id, "other");
    config_.profile = "absent";
    const auto credentials = resolve();
    ASSERT_FALSE(credentials.has_value());
    EXPECT_THAT(credentials.error().message, HasSubstr("absent"));
}

TEST_F(CredentialsTest, NoneFoundSaysWhatToDo) {
    const auto credentials = resolve();
    ASSERT_FALSE(credentials.has_value());
    EXPECT_EQ(credentials.error().errno_value, EACCES);
    EXPECT_THAT(credentials.error().message, HasSubstr("AWS_ACCESS_KEY_ID"));
    EXPECT_THAT(credentials.error().message, HasSubstr("--no-sign-request"));
}

TEST_F(CredentialsTest, HalfAPairIsAnError) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    EXPECT_FALSE(resolve().has_value());
}

TEST_F(CredentialsTest, ABrokenFileIsAnErrorThatShowsNoSecret) {
    write("credentials", "[default\naws_secret_access_key = hidden\n");
    const auto credentials = resolve();
    ASSERT_FALSE(credentials.has_value());
    EXPECT_THAT(credentials.error().message, ::testing::Not(HasSubstr("hidden")));
}

TEST_F(CredentialsTest, Anonymous) {
    config_.no_sign_request = true;
    const auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value());
    EXPECT_EQ(*credentials, nullptr);
}

TEST_F(CredentialsTest, RefusedCredentialsAreReadAgain) {
    write("credentials", "[default]\naws_access_key_id = old\naws_secret_access_key = s\n");
    auto provider = make();
    ASSERT_TRUE(provider.has_value());
    const SharedCredentials old = *ask(**provider);
    write("credentials", "[default]\naws_access_key_id = new\naws_secret_access_key = s\n");
    EXPECT_EQ(*ask(**provider), old);
    (*provider)->refuse(old);
    const SharedCredentials renewed = *ask(**provider);
    EXPECT_EQ(renewed->access_key_id, "new");
    // What another request had refused before tells nothing of these.
    (*provider)->refuse(old);
    EXPECT_EQ(*ask(**provider), renewed);
}

}  // namespace
}  // namespace ckptfs
