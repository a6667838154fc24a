// SPDX-License-Identifier: Apache-2.0
#include "credentials/profile_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "aws/ini.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;

// `text` as in the config file, with sections called by the profiles' names.
Result<ProfilePlan> plan(const std::string& text, const std::string& name = "p") {
    const IniFile file = parse_ini(text).value();
    const auto section = [&file](const std::string& wanted) -> Result<Profile> {
        const auto found = file.find(wanted);
        return found == file.end() ? Profile() : found->second;
    };
    return plan_profile(
        name, {section, [&section](const std::string& session) { return section("sso-session " + session); }});
}

std::string refusal(const std::string& text) {
    const auto planned = plan(text);
    return planned ? "planned" : planned.error().message;
}

TEST(ProfilePlan, Keys) {
    const auto planned = plan("[p]\naws_access_key_id = id\naws_secret_access_key = s\naws_session_token = t\n");
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->origin, ProfileOrigin::kKeys);
    EXPECT_EQ(planned->keys, (Credentials{"id", Secret("s"), Secret("t"), std::nullopt}));
    EXPECT_THAT(refusal("[p]\naws_access_key_id = id\n"), HasSubstr("set together"));
}

TEST(ProfilePlan, NothingInIt) {
    EXPECT_EQ(plan("[p]\nregion = x\n")->origin, ProfileOrigin::kNone);
    EXPECT_EQ(plan("")->origin, ProfileOrigin::kNone);
}

TEST(ProfilePlan, ARoleWithKeysOfAnotherProfile) {
    const auto planned = plan(
        "[p]\nrole_arn = arn:role\nsource_profile = keys\nexternal_id = x\nrole_session_name = me\n"
        "duration_seconds = 900\n[keys]\naws_access_key_id = id\naws_secret_access_key = s\n");
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->origin, ProfileOrigin::kKeys);
    ASSERT_EQ(planned->roles.size(), 1U);
    EXPECT_EQ(planned->roles[0].arn, "arn:role");
    EXPECT_EQ(planned->roles[0].external_id, "x");
    EXPECT_EQ(planned->roles[0].session_name, "me");
    EXPECT_EQ(planned->roles[0].duration, "900");
}

TEST(ProfilePlan, RolesAreAssumedFromTheInnermostOut) {
    const auto planned = plan(
        "[p]\nrole_arn = outer\nsource_profile = q\n[q]\nrole_arn = inner\nsource_profile = r\n"
        "[r]\ncredential_process = get keys\n");
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->origin, ProfileOrigin::kProcess);
    EXPECT_EQ(planned->command, "get keys");
    ASSERT_EQ(planned->roles.size(), 2U);
    EXPECT_EQ(planned->roles[0].arn, "inner");
    EXPECT_EQ(planned->roles[1].arn, "outer");
}

TEST(ProfilePlan, AProfileMayNameItself) {
    const char* keys = "aws_access_key_id = id\naws_secret_access_key = s\n";
    const auto planned = plan(std::string("[p]\nrole_arn = arn\nsource_profile = p\n") + keys);
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->origin, ProfileOrigin::kKeys);
    EXPECT_EQ(planned->roles.size(), 1U);
    EXPECT_THAT(refusal("[p]\nrole_arn = arn\nsource_profile = p\n"), HasSubstr("leads back"));
}

TEST(ProfilePlan, KeysOfASourceComeBeforeItsRole) {
    const auto planned = plan(
        "[p]\nrole_arn = outer\nsource_profile = q\n[q]\nrole_arn = inner\nsource_profile = p\n"
        "aws_access_key_id = id\naws_secret_access_key = s\n");
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->roles.size(), 1U);
    // Of the profile itself, they come after.
    EXPECT_EQ(plan("[p]\nrole_arn = r\ncredential_source = Environment\naws_access_key_id = id\n"
                   "aws_secret_access_key = s\n")
                  ->origin,
              ProfileOrigin::kEnvironment);
}

TEST(ProfilePlan, Circles) {
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\n[q]\nrole_arn = b\nsource_profile = r\n"
                        "[r]\nrole_arn = c\nsource_profile = p\n"),
                HasSubstr("profile r: source_profile p leads back to itself"));
}

TEST(ProfilePlan, RolesOfServices) {
    EXPECT_EQ(plan("[p]\nrole_arn = a\ncredential_source = Environment\n")->origin, ProfileOrigin::kEnvironment);
    EXPECT_EQ(plan("[p]\nrole_arn = a\ncredential_source = EcsContainer\n")->origin, ProfileOrigin::kContainer);
    EXPECT_EQ(plan("[p]\nrole_arn = a\ncredential_source = Ec2InstanceMetadata\n")->origin, ProfileOrigin::kInstance);
    EXPECT_THAT(refusal("[p]\nrole_arn = a\ncredential_source = Moon\n"), HasSubstr("credential_source Moon"));
}

TEST(ProfilePlan, WebIdentity) {
    const auto planned = plan("[p]\nrole_arn = a\nweb_identity_token_file = /token\nrole_session_name = me\n");
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(planned->origin, ProfileOrigin::kWebIdentity);
    EXPECT_EQ(planned->token_file, "/token");
    EXPECT_EQ(planned->web_role.session_name, "me");
    EXPECT_TRUE(planned->roles.empty());
}

TEST(ProfilePlan, IdentityCenter) {
    const auto session = plan(
        "[p]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = dev\n"
        "[sso-session corp]\nsso_start_url = https://corp\nsso_region = eu-west-1\n");
    ASSERT_TRUE(session.has_value()) << session.error().message;
    EXPECT_EQ(session->origin, ProfileOrigin::kSso);
    EXPECT_EQ(session->sso.start_url, "https://corp");
    EXPECT_EQ(session->sso.session, "corp");
    const auto legacy =
        plan("[p]\nsso_start_url = https://corp\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = dev\n");
    ASSERT_TRUE(legacy.has_value()) << legacy.error().message;
    EXPECT_EQ(legacy->sso.session, "");
    EXPECT_THAT(refusal("[p]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = dev\n"),
                HasSubstr("sso_start_url"));
}

TEST(ProfilePlan, WhatIsIncompleteOrContradictsItself) {
    EXPECT_THAT(refusal("[p]\nrole_arn = a\n"), HasSubstr("role_arn needs"));
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\ncredential_source = Environment\n"),
                HasSubstr("exclude each other"));
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\n"), HasSubstr("profile q: there is no such profile"));
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\n[q]\nregion = x\n"),
                HasSubstr("profile q: there are no credentials in it"));
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\nmfa_serial = arn\n"), HasSubstr("mfa_serial"));
    EXPECT_THAT(refusal("[p]\nrole_arn = a\nsource_profile = q\nduration_seconds = 1h\n"),
                HasSubstr("duration_seconds"));
}

}  // namespace
}  // namespace ckptfs
