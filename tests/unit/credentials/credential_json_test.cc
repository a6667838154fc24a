// SPDX-License-Identifier: Apache-2.0
#include "credentials/credential_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aws/times.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CredentialJson, OfMetadata) {
    const auto found = parse_metadata_credentials(
        R"({"Code": "Success", "LastUpdated": "2030-01-31T06:00:00Z", "AccessKeyId": "id", "SecretAccessKey": "secret",
            "Token": "token", "Expiration": "2030-01-31T12:00:00Z", "RoleArn": null, "AccountId": 12})");
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(*found, (Credentials{"id", Secret("secret"), Secret("token"), parse_iso8601("2030-01-31T12:00:00Z")}));
}

TEST(CredentialJson, MetadataMaySayWhyThereAreNone) {
    const auto found = parse_metadata_credentials(R"({"Code": "AssumeRoleUnauthorizedAccess", "Message": "no trust"})");
    ASSERT_FALSE(found.has_value());
    EXPECT_THAT(found.error().message, HasSubstr("AssumeRoleUnauthorizedAccess: no trust"));
}

TEST(CredentialJson, OfAProcess) {
    const auto all = parse_process_credentials(
        R"({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "secret", "SessionToken": "token",
            "Expiration": "2030-01-31T12:00:00+00:00"})");
    ASSERT_TRUE(all.has_value()) << all.error().message;
    EXPECT_EQ(*all, (Credentials{"id", Secret("secret"), Secret("token"), parse_iso8601("2030-01-31T12:00:00Z")}));
    const auto least = parse_process_credentials(R"({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "secret"})");
    ASSERT_TRUE(least.has_value()) << least.error().message;
    EXPECT_EQ(*least, (Credentials{"id", Secret("secret"), Secret(), std::nullopt}));
}

TEST(CredentialJson, WhatIsNoneIsAnErrorThatShowsNoSecret) {
    for (const char* text :
         {"", "hidden", R"(["hidden"])", R"({"Version": 1, "SecretAccessKey": "hidden")",
          R"({"Version": 1, "SecretAccessKey": "hidden"})", R"({"Version": 1, "AccessKeyId": "id"})",
          R"({"Version": 2, "AccessKeyId": "id", "SecretAccessKey": "hidden"})",
          R"({"AccessKeyId": "id", "SecretAccessKey": "hidden"})",
          R"({"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "hidden", "Expiration": "tomorrow"})"}) {
        const auto found = parse_process_credentials(text);
        ASSERT_FALSE(found.has_value()) << text;
        EXPECT_THAT(found.error().message, Not(HasSubstr("hidden"))) << text;
    }
}

TEST(CredentialJson, OfIdentityCenter) {
    const auto found = parse_sso_credentials(
        R"({"roleCredentials": {"accessKeyId": "id", "secretAccessKey": "secret", "sessionToken": "token",
            "expiration": 1896091200000}})");
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(*found, (Credentials{"id", Secret("secret"), Secret("token"), parse_iso8601("2030-01-31T12:00:00Z")}));
    for (const char* expiration : {"-1", "1e300", "\"soon\"", "99999999999999999999", "null"}) {
        EXPECT_FALSE(parse_sso_credentials(std::string(R"({"roleCredentials": {"accessKeyId": "id",
            "secretAccessKey": "s", "expiration": )") +
                                           expiration + "}}")
                         .has_value())
            << expiration;
    }
}

TEST(CredentialJson, TokensOfLogins) {
    for (const char* time : {"2030-01-31T12:00:00Z", "2030-01-31T12:00:00UTC"}) {
        const auto token =
            parse_sso_token(std::string(R"({"startUrl": "u", "accessToken": "token", "expiresAt": ")") + time + "\"}");
        ASSERT_TRUE(token.has_value()) << token.error().message;
        EXPECT_EQ(token->access_token.reveal(), "token");
        EXPECT_EQ(token->expires, parse_iso8601("2030-01-31T12:00:00Z"));
    }
    EXPECT_FALSE(parse_sso_token(R"({"accessToken": "token"})").has_value());
    EXPECT_FALSE(parse_sso_token(R"({"expiresAt": "2030-01-31T12:00:00Z"})").has_value());
}

TEST(CredentialJson, RenewalsOfLogins) {
    const auto renewal = parse_sso_renewal(R"({"accessToken": "token", "expiresIn": 3600, "idToken": null})");
    ASSERT_TRUE(renewal.has_value()) << renewal.error().message;
    EXPECT_EQ(renewal->valid_for, std::chrono::hours(1));
    EXPECT_TRUE(renewal->refresh_token.empty());
    for (const char* body :
         {"", "[]", R"({"expiresIn": 3600})", R"({"accessToken": "token"})",
          R"({"accessToken": "token", "expiresIn": -1})", R"({"accessToken": "token", "expiresIn": 1e300})",
          R"({"accessToken": "token", "expiresIn": 99999999999})"}) {
        EXPECT_FALSE(parse_sso_renewal(body).has_value()) << body;
    }
}

TEST(CredentialJson, ARenewedLoginKeepsWhatIsNotKnown) {
    const auto now = parse_iso8601("2030-01-31T12:00:00Z");
    const SsoRenewal renewal{Secret("new"), std::chrono::hours(1), Secret()};
    EXPECT_EQ(renewed_sso_token(R"({"z": [1, {"a": null}], "expiresAt": "x", "accessToken": "old", "a": 1.5})", renewal,
                                *now),
              R"({"z":[1,{"a":null}],"expiresAt":"2030-01-31T13:00:00Z","accessToken":"new","a":1.5})");
    EXPECT_FALSE(renewed_sso_token("[]", renewal, *now).has_value());
    const std::string deep = R"({"a": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
    EXPECT_FALSE(renewed_sso_token(deep, renewal, *now).has_value());
}

TEST(CredentialJson, FailuresAreOneLine) {
    EXPECT_EQ(failure_text(R"({"code": "Denied", "message": "not\nyou"})"), "Denied: not\\x0ayou");
    EXPECT_EQ(failure_text("not found"), "not found");
    EXPECT_LE(failure_text(std::string(10'000, 'x')).size(), 400U);
}

}  // namespace
}  // namespace ckptfs
