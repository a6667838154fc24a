// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "aws/profile_file.h"
#include "credentials/provider.h"
#include "source_fixture.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public testing::SourceTest {
protected:
    [[nodiscard]] Result<std::unique_ptr<CredentialsProvider>> make() {
        return make_credentials_provider(config_, environment(), {transport_, clock_, [] { return 0.5; }});
    }

    [[nodiscard]] Result<SharedCredentials> resolve() {
        auto provider = make();
        return provider ? ask(**provider) : failure(std::move(provider.error()));
    }

    static Result<SharedCredentials> ask(CredentialsProvider& provider) {
        std::promise<Result<SharedCredentials>> answered;
        provider.get(
            [&answered](Result<SharedCredentials> credentials) { answered.set_value(std::move(credentials)); });
        return answered.get_future().get();
    }

    // Every source that is asked for answers with a key that tells which one it is.
    void serve_everything() {
        transport_.answer_with([](const HttpRequest& request) -> Result<HttpResponse> {
            if (request.url.find("sts.") != std::string::npos) {
                const std::string body = request.body.to_string();
                const bool token = body.find("WebIdentityToken") != std::string::npos;
                return HttpResponse{200,
                                    {},
                                    token ? testing::assumed_role("AssumeRoleWithWebIdentity", "web")
                                          : testing::assumed_role("AssumeRole", "role")};
            }
            if (request.url.ends_with("/security-credentials/")) {
                return HttpResponse{200, {}, "train"};
            }
            const bool instance = request.url.find("169.254.169.254") != std::string::npos;
            return HttpResponse{200,
                                {},
                                std::string(R"({"AccessKeyId": ")") + (instance ? "instance" : "container") +
                                    R"(", "SecretAccessKey": "s", "Token": "t"})"};
        });
    }

    std::string found() {
        const auto credentials = resolve();
        return credentials ? (*credentials)->access_key_id : credentials.error().message;
    }

    StoreConfig config_;
};

TEST_F(CredentialsTest, FromTheEnvironment) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
    variables_["AWS_SESSION_TOKEN"] = "token";
    write(".aws/credentials", "[default]\naws_access_key_id = other\naws_secret_access_key = other\n");
    const auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->access_key_id, "id");
    EXPECT_EQ((*credentials)->secret_access_key.reveal(), "secret");
    EXPECT_EQ((*credentials)->session_token.reveal(), "token");
}

TEST_F(CredentialsTest, FromTheCredentialsFile) {
    write(".aws/credentials",
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
    write(".aws/config",
          "[default]\nregion = eu-west-1\n[profile train]\naws_access_key_id = id\naws_secret_access_key = s\n");
    config_.profile = "train";
    const auto credentials = resolve();
    ASSERT_TRUE(credentials.has_value()) << credentials.error().message;
    EXPECT_EQ((*credentials)->access_key_id, "id");
    EXPECT_EQ(read_profile(profile_files(environment()), "default")->at("region"), "eu-west-1");
}

// As a user who is not root, for whom no directory is closed; in a process of its own.
int exit_code_as_nobody(const std::function<bool()>& check) {
    constexpr uid_t kNobody = 65534;
    const bool changed = getuid() != 0 || setresuid(kNobody, kNobody, kNobody) == 0;
    return changed && check() ? 0 : 1;
}

TEST_F(CredentialsTest, AHomeThatMayNotBeEnteredHasNoFiles) {
    std::filesystem::permissions(home_ / ".aws", std::filesystem::perms::none);
    const auto profile_is_empty = [this] {
        const auto profile = read_profile(profile_files(environment()), "default");
        return profile.has_value() && profile->empty();
    };
    std::filesystem::permissions(home_, std::filesystem::perms(0755));
    EXPECT_EXIT(_exit(exit_code_as_nobody(profile_is_empty)), ::testing::ExitedWithCode(0), "");
    variables_["AWS_CONFIG_FILE"] = (home_ / ".aws/config").string();
    EXPECT_EXIT(_exit(exit_code_as_nobody(profile_is_empty)), ::testing::ExitedWithCode(1), "") << "it was named";
    std::filesystem::permissions(home_ / ".aws", std::filesystem::perms(0755));
}

TEST_F(CredentialsTest, AProfileOnTheCommandLineComesBeforeTheEnvironment) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
    write(".aws/credentials", "[train]\naws_access_key_id = other\naws_secret_access_key = s\n");
    config_.profile = "train";
    EXPECT_EQ((*resolve())->access_key_id, "other");
    config_.profile = "absent";
    const auto credentials = resolve();
    ASSERT_FALSE(credentials.has_value());
    EXPECT_THAT(credentials.error().message, HasSubstr("absent"));
}

TEST_F(CredentialsTest, NoneFoundSaysWhereWasLookedAndWhatToDo) {
    const auto credentials = resolve();
    ASSERT_FALSE(credentials.has_value());
    EXPECT_EQ(credentials.error().errno_value, EACCES);
    for (const char* part : {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "profile default of",
                             "/.aws/credentials", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                             "the instance metadata of http://169.254.169.254", "--no-sign-request"}) {
        EXPECT_THAT(credentials.error().message, HasSubstr(part));
    }
    EXPECT_THAT(credentials.error().message, ::testing::Not(HasSubstr("\n")));
}

TEST_F(CredentialsTest, SourcesInTheOrderOfTheAwsTools) {
    serve_everything();
    EXPECT_EQ(found(), "instance");
    variables_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/x";
    EXPECT_EQ(found(), "container");
    write(".aws/credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = s\n");
    EXPECT_EQ(found(), "file");
    variables_["AWS_ROLE_ARN"] = "arn";
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = write("token", "t");
    EXPECT_EQ(found(), "web");
    variables_["AWS_ACCESS_KEY_ID"] = "environment";
    variables_["AWS_SECRET_ACCESS_KEY"] = "s";
    EXPECT_EQ(found(), "environment");
    config_.profile = "default";
    EXPECT_EQ(found(), "file");
}

TEST_F(CredentialsTest, AProfileWithoutCredentialsLeavesThemToTheMachine) {
    serve_everything();
    write(".aws/config", "[profile train]\nregion = eu-west-1\n");
    config_.profile = "train";
    EXPECT_EQ(found(), "instance");
}

TEST_F(CredentialsTest, AFileThatIsNamedAndMissingIsNotPassedBy) {
    serve_everything();
    variables_["AWS_SHARED_CREDENTIALS_FILE"] = "/no/such/credentials";
    EXPECT_THAT(found(), HasSubstr("AWS_SHARED_CREDENTIALS_FILE is /no/such/credentials, and there is no such file"));
    variables_["AWS_PROFILE"] = "misspelt";
    EXPECT_THAT(found(), HasSubstr("misspelt in /no/such/credentials (no such file) and " + home_.string()));
    variables_["AWS_ACCESS_KEY_ID"] = "environment";
    variables_["AWS_SECRET_ACCESS_KEY"] = "s";
    EXPECT_EQ(found(), "environment");
    config_.credentials_file = "/no/such/file";
    EXPECT_EQ(found(), "--credentials-file /no/such/file: No such file or directory");
    config_.no_sign_request = true;
    EXPECT_TRUE(resolve().has_value());
}

TEST_F(CredentialsTest, ASourceThatFailsIsNotPassedBy) {
    serve_everything();
    variables_["AWS_PROFILE"] = "misspelt";
    EXPECT_THAT(found(), HasSubstr("there is no profile misspelt"));
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/no/such/file";
    variables_["AWS_ROLE_ARN"] = "arn";
    EXPECT_THAT(found(), HasSubstr("/no/such/file"));
}

TEST_F(CredentialsTest, ASourceThatOnceHadThemIsNotLeft) {
    serve_everything();
    write(".aws/credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = s\n");
    auto provider = make();
    ASSERT_TRUE(provider.has_value()) << provider.error().message;
    std::filesystem::remove(home_ / ".aws/credentials");
    (*provider)->refuse(*ask(**provider));
    const auto gone = ask(**provider);
    ASSERT_FALSE(gone.has_value());
    EXPECT_THAT(gone.error().message, HasSubstr("has no credentials any more"));
    EXPECT_TRUE(gone.error().retryable);
}

TEST_F(CredentialsTest, RolesAreAssumedOneAfterTheOther) {
    transport_.answer_with([](const HttpRequest& request) -> Result<HttpResponse> {
        const bool first = request.body.to_string().find("inner") != std::string::npos;
        return HttpResponse{200, {}, testing::assumed_role("AssumeRole", first ? "first" : "second")};
    });
    write(".aws/credentials", "[keys]\naws_access_key_id = id\naws_secret_access_key = s\naws_session_token = t\n");
    write(".aws/config",
          "[profile train]\nregion = ap-south-1\nrole_arn = outer\nsource_profile = middle\nexternal_id = x y\n"
          "duration_seconds = 900\n[profile middle]\nrole_arn = inner\nsource_profile = keys\n"
          "role_session_name = me\n");
    config_.profile = "train";
    EXPECT_EQ(found(), "second");
    const auto asked = transport_.asked();
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].url, "https://sts.ap-south-1.amazonaws.com/");
    EXPECT_EQ(asked[0].body.to_string(), "Action=AssumeRole&RoleArn=inner&RoleSessionName=me&Version=2011-06-15");
    EXPECT_EQ(testing::header_of(asked[0], "x-amz-security-token"), "t");
    EXPECT_THAT(testing::header_of(asked[0], "authorization"), HasSubstr("Credential=id/20231114/ap-south-1/sts/"));
    EXPECT_EQ(asked[1].body.to_string(),
              "Action=AssumeRole&DurationSeconds=900&ExternalId=x%20y&RoleArn=outer&RoleSessionName=ckptfs-1700000000&"
              "Version=2011-06-15");
    EXPECT_THAT(testing::header_of(asked[1], "authorization"), HasSubstr("Credential=first/"));
    EXPECT_EQ(testing::header_of(asked[1], "x-amz-security-token"), "t-first");
}

class ClockOfServiceTest : public CredentialsTest {
protected:
    ClockOfServiceTest() {
        write(".aws/credentials", "[keys]\naws_access_key_id = id\naws_secret_access_key = s\n");
        write(".aws/config",
              "[profile train]\nrole_arn = outer\nsource_profile = middle\n"
              "[profile middle]\nrole_arn = inner\nsource_profile = keys\n");
        config_.profile = "train";
    }
    // A service in the year 2024, which takes no other time.
    void refuse_other_times(const std::string& code, const std::string& date) {
        transport_.answer_with([code, date](const HttpRequest& request) -> Result<HttpResponse> {
            if (testing::header_of(request, "x-amz-date").starts_with("20240101T")) {
                return HttpResponse{200, {}, testing::assumed_role("AssumeRole", "role")};
            }
            return HttpResponse{403,
                                {{"date", date}},
                                "<ErrorResponse><Error><Code>" + code +
                                    "</Code><Message>Signature expired: 20231114T221320Z is now earlier than "
                                    "20240101T114500Z</Message></Error></ErrorResponse>"};
        });
    }
};

TEST_F(ClockOfServiceTest, AWrongClockIsCorrectedOnce) {
    for (const char* code : {"SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed"}) {
        const std::size_t before = transport_.asked().size();
        refuse_other_times(code, "Mon, 01 Jan 2024 12:00:00 GMT");
        EXPECT_EQ(found(), "role") << code;
        // The second role is asked for with the right time at once.
        EXPECT_EQ(transport_.asked().size(), before + 3) << code;
    }
}

TEST_F(ClockOfServiceTest, WhatTheClockDoesNotExplainIsFinal) {
    // That of the test's clock, within the minutes that a service bears.
    refuse_other_times("SignatureDoesNotMatch", "Tue, 14 Nov 2023 22:15:20 GMT");
    EXPECT_FALSE(resolve().has_value());
    EXPECT_EQ(transport_.asked().size(), 1U);
    refuse_other_times("SignatureDoesNotMatch", "");
    EXPECT_FALSE(resolve().has_value());
    refuse_other_times("AccessDenied", "Mon, 01 Jan 2024 12:00:00 GMT");
    EXPECT_FALSE(resolve().has_value());
    EXPECT_EQ(transport_.asked().size(), 3U);
    // A time that is refused again is not tried a third time.
    refuse_other_times("SignatureDoesNotMatch", "Mon, 01 Jan 2025 12:00:00 GMT");
    const auto refused = resolve();
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("AssumeRole inner: SignatureDoesNotMatch: Signature expired"));
    EXPECT_EQ(transport_.asked().size(), 5U);
}

TEST_F(CredentialsTest, ServicesAreAskedWhereTheEnvironmentSays) {
    serve_everything();
    variables_["AWS_ROLE_ARN"] = "arn";
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = write("token", "t");
    variables_["AWS_ENDPOINT_URL"] = "http://sts.everything";
    EXPECT_EQ(found(), "web");
    variables_["AWS_ENDPOINT_URL_STS"] = "http://sts.here:8080/base/";
    EXPECT_EQ(found(), "web");
    EXPECT_EQ(transport_.asked().at(0).url, "http://sts.everything/");
    EXPECT_EQ(transport_.asked().at(1).url, "http://sts.here:8080/base/");
}

TEST_F(CredentialsTest, HalfAPairIsAnError) {
    variables_["AWS_ACCESS_KEY_ID"] = "id";
    EXPECT_FALSE(resolve().has_value());
}

TEST_F(CredentialsTest, ABrokenFileIsAnErrorThatShowsNoSecret) {
    write(".aws/credentials", "[default\naws_secret_access_key = hidden\n");
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
    write(".aws/credentials", "[default]\naws_access_key_id = old\naws_secret_access_key = s\n");
    auto provider = make();
    ASSERT_TRUE(provider.has_value());
    const SharedCredentials old = *ask(**provider);
    write(".aws/credentials", "[default]\naws_access_key_id = new\naws_secret_access_key = s\n");
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
