// SPDX-License-Identifier: Apache-2.0
#include "credentials/container_source.h"
#include "credentials/instance_source.h"
#include "credentials/simple_sources.h"
#include "credentials/sso_source.h"
#include "source_fixture.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;
using testing::header_of;
using testing::kMetadataCredentials;
using ::testing::Not;

class ContainerSourceTest : public testing::SourceTest {};

TEST_F(ContainerSourceTest, NothingIsConfigured) {
    EXPECT_EQ(*fetch(ContainerSource(context())), nullptr);
    EXPECT_TRUE(transport_.asked().empty());
}

TEST_F(ContainerSourceTest, TheRelativeUriComesFirst) {
    variables_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/x";
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://127.0.0.1/other";
    transport_.answer_with(200, kMetadataCredentials);
    const auto found = fetch(ContainerSource(context()));
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ((*found)->access_key_id, "ASIA1");
    EXPECT_EQ((*found)->session_token.reveal(), "token1");
    EXPECT_TRUE((*found)->expires.has_value());
    const HttpRequest asked = transport_.asked().at(0);
    EXPECT_EQ(asked.url, "http://169.254.170.2/v2/credentials/x");
    EXPECT_TRUE(asked.bypasses_proxy);
    EXPECT_EQ(header_of(asked, "authorization"), "");
}

TEST_F(ContainerSourceTest, TheTokensFileIsReadEveryTime) {
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.170.23/v1/credentials";
    variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "not this one";
    variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = write("token", "first\n");
    transport_.answer_with(200, kMetadataCredentials);
    ContainerSource source(context());
    EXPECT_TRUE(fetch(source).has_value());
    write("token", "second\n");
    EXPECT_TRUE(fetch(source).has_value());
    EXPECT_EQ(header_of(transport_.asked().at(0), "authorization"), "first");
    EXPECT_EQ(header_of(transport_.asked().at(1), "authorization"), "second");
    write("token", "first\nX-Other: header\n");
    EXPECT_THAT(message(fetch(source)), HasSubstr("more than one line"));
    std::filesystem::remove(home_ / "token");
    EXPECT_THAT(message(fetch(source)), HasSubstr("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
}

TEST_F(ContainerSourceTest, FailuresNameIt) {
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://localhost:1/x";
    transport_.answer_with(403, R"({"code": "AccessDenied", "message": "wrong token"})");
    auto answer = fetch(ContainerSource(context()));
    EXPECT_THAT(message(answer), HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    EXPECT_THAT(message(answer), HasSubstr("403: AccessDenied: wrong token"));
    EXPECT_FALSE(answer.error().retryable);
    transport_.answer_with(500, "busy");
    answer = fetch(ContainerSource(context()));
    EXPECT_TRUE(answer.error().retryable);
    // Once refused, three times busy.
    EXPECT_EQ(transport_.asked().size(), 4U);
}

TEST(ContainerUrl, PlainHttpStaysOnTheMachine) {
    for (const char* url : {"http://127.0.0.1:8080/x", "http://127.1.2.3/x?y=z", "http://localhost/x",
                            "http://[::1]:80/x", "http://169.254.170.2/x", "http://169.254.170.23/v1/credentials",
                            "http://[fd00:ec2::23]/v1/credentials", "https://credentials.example.com/x"}) {
        EXPECT_EQ(*container_url(std::nullopt, url), url);
    }
    for (const char* url : {"http://example.com/x", "http://169.254.169.254/x", "http://127.0.0.1.example.com/x",
                            "http://localhost@example.com/x", "http://10.0.0.1/", "ftp://127.0.0.1/", "nonsense"}) {
        EXPECT_FALSE(container_url(std::nullopt, url).has_value()) << url;
    }
    EXPECT_FALSE(container_url("@example.com/", std::nullopt).has_value());
}

class InstanceSourceTest : public testing::SourceTest {
protected:
    // A metadata service with a role.
    void serve(const std::string& role = "train") {
        transport_.answer_with([role](const HttpRequest& request) -> Result<HttpResponse> {
            if (request.method == "PUT" && request.url.ends_with("/latest/api/token")) {
                return header_of(request, "x-aws-ec2-metadata-token-ttl-seconds").empty() ? HttpResponse{400, {}, ""}
                                                                                          : HttpResponse{200, {}, "T1"};
            }
            if (header_of(request, "x-aws-ec2-metadata-token") != "T1") {
                return HttpResponse{401, {}, ""};
            }
            if (request.url.ends_with("/security-credentials/") && !role.empty()) {
                return HttpResponse{200, {}, role + "\n"};
            }
            return request.url.ends_with("/security-credentials/train") ? HttpResponse{200, {}, kMetadataCredentials}
                                                                        : HttpResponse{404, {}, "not found"};
        });
    }
};

TEST_F(InstanceSourceTest, TokenRoleCredentials) {
    serve();
    const auto found = fetch(InstanceSource(context()));
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ((*found)->access_key_id, "ASIA1");
    for (const HttpRequest& request : transport_.asked()) {
        EXPECT_THAT(request.url, ::testing::StartsWith("http://169.254.169.254/latest/"));
        EXPECT_TRUE(request.bypasses_proxy);
        EXPECT_LE(request.connect_timeout, std::chrono::seconds(1));
    }
    EXPECT_EQ(transport_.asked().size(), 3U);
}

TEST_F(InstanceSourceTest, NotAnInstance) {
    EXPECT_EQ(*fetch(InstanceSource(context())), nullptr);
    EXPECT_EQ(transport_.asked().size(), 1U);
}

TEST_F(InstanceSourceTest, AnInstanceWithoutARole) {
    serve("");
    EXPECT_EQ(*fetch(InstanceSource(context())), nullptr);
}

TEST_F(InstanceSourceTest, SwitchedOff) {
    serve();
    variables_["AWS_EC2_METADATA_DISABLED"] = "True";
    EXPECT_EQ(*fetch(InstanceSource(context())), nullptr);
    EXPECT_TRUE(transport_.asked().empty());
}

TEST_F(InstanceSourceTest, OnceItHasAnsweredItsSilenceIsAnError) {
    serve();
    InstanceSource source(context());
    ASSERT_TRUE(fetch(source).has_value());
    transport_.answer_with(503, "");
    EXPECT_THAT(message(fetch(source)), HasSubstr("the instance metadata of http://169.254.169.254: HTTP status 503"));
}

TEST_F(InstanceSourceTest, ARoleThatMayNotBeTakenIsAnError) {
    transport_.answer_with(200, R"({"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role"})");
    EXPECT_THAT(message(fetch(InstanceSource(context()))), HasSubstr("EC2 cannot assume the role"));
}

TEST(MetadataEndpoint, FromTheEnvironment) {
    std::map<std::string, std::string> variables;
    const Environment environment = [&variables](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    EXPECT_EQ(metadata_endpoint(environment), "http://169.254.169.254");
    variables["AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"] = "IPv6";
    EXPECT_EQ(metadata_endpoint(environment), "http://[fd00:ec2::254]");
    variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1338/";
    EXPECT_EQ(metadata_endpoint(environment), "http://127.0.0.1:1338");
}

class SsoSourceTest : public testing::SourceTest {
protected:
    [[nodiscard]] SsoSource source() {
        const SsoSettings settings{"https://corp", "eu-north-1", "123456789012", "Train", "corp"};
        return {context(), settings, "work", std::make_shared<SsoLogin>(context(), settings, "work")};
    }
    void log_in(const std::string& until) const {
        std::ofstream(sso_cache_path(home_.string(), {"", "", "", "", "corp"}))
            << R"({"accessToken": "the token", "expiresAt": ")" << until << "\"}";
    }
};

TEST_F(SsoSourceTest, TheCacheIsNamedAsTheAwsCliNamesIt) {
    EXPECT_EQ(sso_cache_path("/home/me", {"abc", "", "", "", ""}),
              "/home/me/.aws/sso/cache/a9993e364706816aba3e25717850c26c9cd0d89d.json");
    EXPECT_EQ(sso_cache_path("/home/me", {"https://corp", "", "", "", "abc"}),
              "/home/me/.aws/sso/cache/a9993e364706816aba3e25717850c26c9cd0d89d.json");
}

TEST_F(SsoSourceTest, KeysForTheToken) {
    log_in("2030-01-01T00:00:00Z");
    transport_.answer_with(200, R"({"roleCredentials": {"accessKeyId": "id", "secretAccessKey": "s",
                                    "sessionToken": "t", "expiration": 1896091200000}})");
    const auto found = fetch(source());
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ((*found)->access_key_id, "id");
    const HttpRequest asked = transport_.asked().at(0);
    EXPECT_EQ(asked.url,
              "https://portal.sso.eu-north-1.amazonaws.com/federation/credentials?account_id=123456789012&"
              "role_name=Train");
    EXPECT_EQ(header_of(asked, "x-amz-sso_bearer_token"), "the token");
}

TEST_F(SsoSourceTest, WhoIsNotLoggedInIsTold) {
    EXPECT_THAT(message(fetch(source())), HasSubstr("no user is logged in; run aws sso login --sso-session corp"));
    log_in("2020-01-01T00:00:00Z");
    EXPECT_THAT(message(fetch(source())), HasSubstr("the login has expired; run aws sso login --sso-session corp"));
    EXPECT_TRUE(transport_.asked().empty());
    log_in("2030-01-01T00:00:00Z");
    transport_.answer_with(401, R"({"message": "Session token not found or invalid"})");
    EXPECT_THAT(message(fetch(source())), HasSubstr("run aws sso login --sso-session corp"));
    transport_.answer_with(403, R"({"message": "No access"})");
    EXPECT_THAT(message(fetch(source())), HasSubstr("role Train of account 123456789012: HTTP status 403: No access"));
}

class WebIdentitySourceTest : public testing::SourceTest {};

TEST_F(WebIdentitySourceTest, SendsTheTokenUnsigned) {
    variables_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/train";
    variables_["AWS_ROLE_SESSION_NAME"] = "pod";
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = write("token", "a.b/c=\n");
    transport_.answer_with(200, testing::assumed_role("AssumeRoleWithWebIdentity", "ASIA2"));
    const auto found = fetch(WebIdentitySource(context()));
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ((*found)->access_key_id, "ASIA2");
    EXPECT_EQ((*found)->secret_access_key.reveal(), "s-ASIA2");
    const HttpRequest asked = transport_.asked().at(0);
    EXPECT_EQ(asked.method, "POST");
    EXPECT_EQ(asked.url, "https://sts.eu-west-1.amazonaws.com/");
    EXPECT_EQ(header_of(asked, "authorization"), "");
    EXPECT_EQ(asked.body.to_string(),
              "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Ftrain&RoleSessionName=pod&"
              "Version=2011-06-15&WebIdentityToken=a.b%2Fc%3D");
}

TEST_F(WebIdentitySourceTest, WhatIsMissing) {
    EXPECT_EQ(*fetch(WebIdentitySource(context())), nullptr);
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = (home_ / "token").string();
    EXPECT_THAT(message(fetch(WebIdentitySource(context()))), HasSubstr("AWS_ROLE_ARN"));
    variables_["AWS_ROLE_ARN"] = "arn";
    EXPECT_THAT(message(fetch(WebIdentitySource(context()))), HasSubstr("No such file"));
    write("token", "\n");
    EXPECT_THAT(message(fetch(WebIdentitySource(context()))), HasSubstr("empty"));
}

TEST_F(WebIdentitySourceTest, RefusalsAreInTheServicesWords) {
    variables_["AWS_ROLE_ARN"] = "arn";
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = write("token", "hidden");
    transport_.answer_with(403,
                           "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                           "<Message>Not authorized</Message></Error><RequestId>r</RequestId></ErrorResponse>");
    const auto answer = fetch(WebIdentitySource(context()));
    EXPECT_EQ(message(answer), "AssumeRoleWithWebIdentity arn: AccessDenied: Not authorized");
    EXPECT_THAT(message(answer), Not(HasSubstr("hidden")));
    EXPECT_EQ(transport_.asked().size(), 1U);
    transport_.answer_with(200, "<html>hidden</html>");
    EXPECT_THAT(message(fetch(WebIdentitySource(context()))), HasSubstr("holds no session"));
}

}  // namespace
}  // namespace ckptfs
