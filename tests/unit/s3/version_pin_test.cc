// SPDX-License-Identifier: Apache-2.0
#include "s3/version_pin.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unit/s3/scripted_sender.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

using Lines = std::vector<std::string>;

constexpr const char* kDemanded = "\"x\"";

// A store with one object, and requests that are right for one version of it only.
class VersionPins : public ScriptedSenderTest {
protected:
    VersionPins() {
        transport_.answer_with([this](const HttpRequest& request) {
            if (request.method == "HEAD") {
                const HttpHeaders described{
                    {"content-length", "1"}, {"etag", etag_}, {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}};
                return etag_.empty() ? HttpResponse{404, {}, ""} : HttpResponse{200, described, ""};
            }
            const std::string condition = header_of(request, header_);
            return HttpResponse{condition.empty() || condition == taken_ ? 200 : refusal_, {}, ""};
        });
    }

    // The requests that it took, with the condition of each that had one.
    std::pair<Status, Lines> send() {
        const std::size_t before = transport_.asked().size();
        std::optional<Status> answer;
        auto call = std::make_shared<Call>();
        call->request = S3Request{"UploadPartCopy", "PUT", "k", {}, {{header_, kDemanded}}, {}};
        call->done = [&answer](const Result<HttpResponse>& outcome) {
            answer = outcome ? Status{} : failure(outcome.error());
        };
        send_pinned(sender_, call, std::make_shared<VersionPin>(sender_, header_, "k", kDemanded));
        Lines lines;
        const std::vector<HttpRequest> asked = transport_.asked();
        for (std::size_t i = before; i < asked.size(); ++i) {
            lines.push_back(asked[i].method + ' ' + header_of(asked[i], header_));
        }
        return {answer.value(), lines};
    }

    std::string header_ = "if-match";
    std::string etag_ = kDemanded;
    // The condition that the store takes; another is answered with this status.
    std::string taken_ = kDemanded;
    int refusal_ = 412;
};

TEST(VersionPin, AVersionIsTheSameWithQuotesAndWithout) {
    EXPECT_TRUE(is_same_version("\"x\"", "x"));
    EXPECT_TRUE(is_same_version("x", "\"x\""));
    EXPECT_FALSE(is_same_version("\"x\"", "\"y\""));
    EXPECT_FALSE(is_same_version("\"x\"", ""));
}

// Swift judges sources of copies by how they were uploaded.
TEST(VersionPin, SourcesThatCameInPartsAreAKindOfTheirOwn) {
    EXPECT_NE(condition_kind(kSourceIfMatch, "CopyObject", "\"x-2\""),
              condition_kind(kSourceIfMatch, "CopyObject", "\"x\""));
    EXPECT_EQ(condition_kind("if-match", "PutObject", "\"x-2\""), condition_kind("if-match", "PutObject", "\"x\""));
    EXPECT_NE(condition_kind("if-match", "PutObject", "\"x\""), condition_kind("if-match", "CopyObject", "\"x\""));
}

TEST_F(VersionPins, WhatTheStoreTakesCostsNoMore) {
    const auto [status, asked] = send();
    EXPECT_TRUE(status);
    EXPECT_EQ(asked, (Lines{"PUT \"x\""}));
}

TEST_F(VersionPins, ARefusalOfAnotherVersionIsBelieved) {
    etag_ = "\"y\"";
    taken_ = etag_;
    for (int times = 0; times < 3; ++times) {
        const auto [status, asked] = send();
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().errno_value, ESTALE);
        EXPECT_EQ(asked, (Lines{"PUT \"x\"", "HEAD "}));
    }
}

TEST_F(VersionPins, OneThatIsTakenWithoutQuotesIsSentSoFromTheSecondTimeOn) {
    taken_ = "x";
    for (int times = 0; times < 2; ++times) {
        const auto [status, asked] = send();
        EXPECT_TRUE(status);
        EXPECT_EQ(asked, (Lines{"PUT \"x\"", "HEAD ", "PUT x"}));
    }
    EXPECT_EQ(send().second, (Lines{"PUT x"}));
}

// By a look before it and one after it: from the second time on by nothing else.
TEST_F(VersionPins, OneThatIsNeverTakenIsLeftOut) {
    taken_ = "";
    for (int times = 0; times < 2; ++times) {
        const auto [status, asked] = send();
        EXPECT_TRUE(status);
        EXPECT_EQ(asked, (Lines{"PUT \"x\"", "HEAD ", "PUT x", "HEAD ", "PUT ", "HEAD "}));
    }
    EXPECT_EQ(send().second, (Lines{"HEAD ", "PUT ", "HEAD "}));
    etag_ = "\"y\"";
    const auto [status, asked] = send();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().errno_value, ESTALE);
    EXPECT_EQ(asked, (Lines{"HEAD "}));
}

TEST_F(VersionPins, TheConditionOfASourceHasQuotesOrIsLeftOut) {
    header_ = kSourceIfMatch;
    taken_ = "x";
    const auto [status, asked] = send();
    EXPECT_TRUE(status);
    EXPECT_EQ(asked, (Lines{"PUT \"x\"", "HEAD ", "PUT ", "HEAD "}));
}

// 501 says nothing of the version: what is seen does.
TEST_F(VersionPins, WhereTheStoreKnowsNoConditionTheLookDecides) {
    taken_ = "";
    refusal_ = 501;
    EXPECT_TRUE(send().first);
    for (const char* there : {"\"y\"", ""}) {
        etag_ = there;
        const auto [status, asked] = send();
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().errno_value, ESTALE) << there;
        EXPECT_EQ(asked, (Lines{"PUT \"x\"", "HEAD "}));
    }
}

}  // namespace
}  // namespace ckptfs::s3
