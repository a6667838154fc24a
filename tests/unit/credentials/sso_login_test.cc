// SPDX-License-Identifier: Apache-2.0
#include "credentials/sso_login.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aws/times.h"
#include "base/json_text.h"
#include "source_fixture.h"

namespace ckptfs {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using ::testing::HasSubstr;
using testing::header_of;
using ::testing::IsEmpty;
using ::testing::Not;

class SsoLoginTest : public testing::SourceTest {
protected:
    [[nodiscard]] SsoLogin login(const std::string& session = "corp") {
        return {context(), {"https://corp", "eu-north-1", "12", "Train", session}, "work"};
    }
    [[nodiscard]] std::string path() const {
        return sso_cache_path(home_.string(), {"https://corp", "", "", "", "corp"});
    }
    // As `aws sso login` does, with a member that only it knows.
    void log_in(Milliseconds left, const std::string& more = kRenewable) const {
        std::ofstream(path()) << R"({"startUrl": "https://corp", "issuedBy": {"name": "x"}, "accessToken": "old access",
                                     "expiresAt": ")"
                              << extended_iso8601(clock_.wall_now() + left) << "\"" << more << "}";
    }
    void grant(const std::string& refresh = R"(, "refreshToken": "new refresh")") {
        transport_.answer_with(
            200, R"({"accessToken": "new access", "expiresIn": 3600, "tokenType": "Bearer")" + refresh + "}");
    }
    void refuse() {
        transport_.answer_with(400, R"({"error": "invalid_grant", "error_description": "old refresh is invalid"})");
    }
    [[nodiscard]] std::map<std::string, std::string> file() const {
        return json_members(*read_whole(path())).value_or(std::map<std::string, std::string>{});
    }
    static std::optional<std::string> read_whole(const std::string& name) {
        std::ifstream stream(name);
        return std::string(std::istreambuf_iterator<char>(stream), {});
    }
    static std::string told(const Result<Secret>& answer) { return answer ? answer->reveal() : answer.error().message; }
    [[nodiscard]] std::string token(SsoLogin& of) const { return told(of.access_token(std::stop_token())); }

    static constexpr const char* kRenewable =
        R"(, "refreshToken": "old refresh", "clientId": "client", "clientSecret": "of client",
             "registrationExpiresAt": "2030-01-01T00:00:00Z")";
};

TEST_F(SsoLoginTest, IsLeftAloneWhileItIsValid) {
    SsoLogin of = login();
    log_in(minutes(16));
    EXPECT_EQ(token(of), "old access");
    EXPECT_THAT(transport_.asked(), IsEmpty());
}

TEST_F(SsoLoginTest, IsRenewedBeforeItEnds) {
    SsoLogin of = login();
    log_in(minutes(14));
    grant();
    EXPECT_EQ(token(of), "new access");
    const HttpRequest asked = transport_.asked().at(0);
    EXPECT_EQ(asked.method, "POST");
    EXPECT_EQ(asked.url, "https://oidc.eu-north-1.amazonaws.com/token");
    EXPECT_EQ(header_of(asked, "content-type"), "application/json");
    EXPECT_EQ(json_members(asked.body.to_string()),
              (std::map<std::string, std::string>{{"clientId", "client"},
                                                  {"clientSecret", "of client"},
                                                  {"grantType", "refresh_token"},
                                                  {"refreshToken", "old refresh"}}));
    // Valid again: nothing more is asked.
    EXPECT_EQ(token(of), "new access");
    EXPECT_EQ(transport_.asked().size(), 1U);
}

TEST_F(SsoLoginTest, IsWrittenBackForTheOtherTools) {
    SsoLogin of = login();
    log_in(-hours(30));
    ASSERT_EQ(chmod(path().c_str(), 0644), 0);
    grant();
    EXPECT_EQ(token(of), "new access");
    auto members = file();
    EXPECT_EQ(members["accessToken"], "new access");
    EXPECT_EQ(members["refreshToken"], "new refresh");
    EXPECT_EQ(members["expiresAt"], extended_iso8601(clock_.wall_now() + hours(1)));
    EXPECT_EQ(members["clientSecret"], "of client");
    EXPECT_EQ(members["issuedBy.name"], "x");
    struct stat status = {};
    ASSERT_EQ(stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0600U);
    // Nothing is left beside it.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(home_ / ".aws/sso/cache"), {}), 1);
}

TEST_F(SsoLoginTest, TheRefreshTokenStaysWhereThereIsNoNewOne) {
    SsoLogin of = login();
    log_in(minutes(1));
    grant("");
    EXPECT_EQ(token(of), "new access");
    EXPECT_EQ(file()["refreshToken"], "old refresh");
}

TEST_F(SsoLoginTest, WhatCannotBeRenewedIsUsedToItsEnd) {
    const std::string expired_client = R"(, "refreshToken": "r", "clientId": "c", "clientSecret": "s",
                                            "registrationExpiresAt": "2020-01-01T00:00:00Z")";
    for (const std::string& more : {std::string(), std::string(R"(, "refreshToken": "r")"), expired_client}) {
        SsoLogin of = login();
        log_in(minutes(1), more);
        EXPECT_EQ(token(of), "old access");
        log_in(-minutes(1), more);
        EXPECT_EQ(token(of), "profile work: the login has expired; run aws sso login --sso-session corp");
    }
    log_in(-minutes(1));
    std::filesystem::rename(path(), sso_cache_path(home_.string(), {"https://corp", "", "", "", ""}));
    SsoLogin without_session = login("");
    EXPECT_THAT(token(without_session), HasSubstr("the login has expired; run aws sso login --profile work"));
    EXPECT_THAT(transport_.asked(), IsEmpty());
}

TEST_F(SsoLoginTest, ARefusalSaysWhatToDoOnceTheTokenHasEnded) {
    SsoLogin of = login();
    log_in(minutes(1));
    refuse();
    EXPECT_EQ(token(of), "old access");
    clock_.move(minutes(2));
    const auto answer = of.access_token(std::stop_token());
    EXPECT_EQ(told(answer),
              "profile work: the login could not be renewed: invalid_grant; run aws sso login --sso-session corp");
    EXPECT_FALSE(answer.error().retryable);
    // A new login is taken.
    log_in(hours(8));
    EXPECT_EQ(token(of), "old access");
}

TEST_F(SsoLoginTest, AServiceThatIsDownIsNobodysLogin) {
    SsoLogin of = login();
    log_in(-minutes(1));
    transport_.answer_with(503, "old refresh");
    const auto answer = of.access_token(std::stop_token());
    EXPECT_EQ(told(answer), "profile work: the login could not be renewed: HTTP status 503");
    EXPECT_TRUE(answer.error().retryable);
    EXPECT_EQ(transport_.asked().size(), 3U);
    transport_.answer_with(200, R"({"accessToken": "old refresh"})");
    EXPECT_THAT(token(of), HasSubstr("oidc.eu-north-1.amazonaws.com: no accessToken and expiresIn in it"));
}

TEST_F(SsoLoginTest, AnotherProgramMayBeFaster) {
    SsoLogin of = login();
    log_in(-minutes(1));
    transport_.answer_with([this](const HttpRequest&) -> Result<HttpResponse> {
        std::ofstream(path()) << R"({"accessToken": "of another", "expiresAt": "2030-01-01T00:00:00Z"})";
        return HttpResponse{400, {}, R"({"error": "invalid_grant"})"};
    });
    EXPECT_EQ(token(of), "of another");
}

TEST_F(SsoLoginTest, AFileThatCannotBeWrittenIsNoObstacle) {
    SsoLogin of = login();
    log_in(minutes(1));
    transport_.answer_with([this](const HttpRequest&) -> Result<HttpResponse> {
        // Nothing can be made beside it, by no user.
        std::filesystem::rename(home_ / ".aws/sso/cache", home_ / ".aws/sso/elsewhere");
        return HttpResponse{200, {}, R"({"accessToken": "new access", "expiresIn": 3600, "refreshToken": "r2"})"};
    });
    EXPECT_EQ(token(of), "new access");
    // Once no user is logged in, what is held counts no more.
    EXPECT_THAT(token(of), HasSubstr("no user is logged in"));
    std::filesystem::rename(home_ / ".aws/sso/elsewhere", home_ / ".aws/sso/cache");
    EXPECT_EQ(token(of), "new access");
    clock_.move(hours(1));
    grant();
    EXPECT_EQ(token(of), "new access");
    EXPECT_EQ(json_members(transport_.asked().back().body.to_string()).value()["refreshToken"], "r2");
    EXPECT_EQ(file()["refreshToken"], "new refresh");
}

TEST_F(SsoLoginTest, NoSecretIsInAMessage) {
    SsoLogin of = login();
    log_in(-minutes(1));
    for (const char* body : {"old refresh", R"({"error_description": "old refresh of client"})", R"(["old access"])"}) {
        for (const int status : {200, 400, 503}) {
            transport_.answer_with(status, body);
            const std::string said = token(of);
            EXPECT_THAT(said, HasSubstr("profile work: ")) << status;
            for (const char* secret : {"old refresh", "of client", "old access"}) {
                EXPECT_THAT(said, Not(HasSubstr(secret))) << status;
            }
        }
    }
}

}  // namespace
}  // namespace ckptfs
