// SPDX-License-Identifier: Apache-2.0
#include "aws/ini.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckptfs {
namespace {

TEST(Ini, SectionsAndSettings) {
    const auto file = parse_ini(
        "# a comment\n[default]\nregion=eu-west-1\n\n[ profile  'my train' ]\r\n"
        "Role_Arn = arn:aws:iam::1:role/x ; why\r\nempty =\n; another\nname = a#b");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->at("default").at("region"), "eu-west-1");
    EXPECT_EQ(file->at("profile my train").at("role_arn"), "arn:aws:iam::1:role/x");
    EXPECT_EQ(file->at("profile my train").at("empty"), "");
    EXPECT_EQ(file->at("profile my train").at("name"), "a#b");
}

TEST(Ini, IndentedLinesBelongToTheSettingAbove) {
    const auto file = parse_ini("[default]\ns3 =\n  max_concurrent_requests = 20\n\tno sign at all\nregion = x\n");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->at("default").size(), 2U);
    EXPECT_EQ(file->at("default").at("region"), "x");
}

TEST(Ini, LinesMayBeAsLongAsSessionTokensAre) {
    const std::string token(4000, 't');
    const auto file = parse_ini("[default]\naws_session_token = " + token + "\n");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->at("default").at("aws_session_token"), token);
}

TEST(Ini, AnErrorNamesTheLineAndNotWhatItSays) {
    for (const char* text : {"\nsecret = before any section\n", "[default]\nsecret\n", "[default\nsecret = s\n",
                             "[default]\n= secret\n"}) {
        const auto file = parse_ini(text);
        ASSERT_FALSE(file.has_value()) << text;
        EXPECT_THAT(file.error().message, ::testing::HasSubstr("line"));
        EXPECT_THAT(file.error().message, ::testing::Not(::testing::HasSubstr("secret")));
    }
}

}  // namespace
}  // namespace ckptfs
