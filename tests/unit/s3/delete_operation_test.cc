// SPDX-License-Identifier: Apache-2.0
#include "s3/delete_operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "unit/s3/scripted_sender.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kNothingFailed = "<DeleteResult/>";
// No OpenSSL has a provider of this name: there is no MD5.
constexpr const char* kNoMd5 = "provider=none";

HttpResponse refusal(int status, const std::string& code) {
    return {status, {}, "<Error><Code>" + code + "</Code><Message>no</Message></Error>"};
}

HttpHeaders object_headers(const std::string& etag) {
    return {{"content-length", "1"}, {"etag", etag}, {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}};
}

class Deletes : public ScriptedSenderTest {
protected:
    using Failures = std::optional<Result<std::vector<DeleteFailure>>>;

    Deletes() {
        defaults_.bucket = "bucket";
        transport_.answer_with(200, kNothingFailed);
    }

    Failures remove_many(std::vector<RemoveRequest> requests, const char* md5_properties = nullptr) {
        Failures answer;
        delete_objects(
            sender_, defaults_, std::move(requests), [&answer](auto failures) { answer = std::move(failures); },
            md5_properties);
        while (!answer && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return answer;
    }
    std::optional<Status> remove(const RemoveRequest& request) {
        std::optional<Status> answer;
        delete_object(sender_, request, [&answer](Status status) { answer = std::move(status); });
        while (!answer && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return answer;
    }
    // "DELETE /key", or "POST" with the body.
    std::vector<std::string> asked() {
        std::vector<std::string> lines;
        for (const HttpRequest& request : transport_.asked()) {
            lines.push_back(request.method + ' ' +
                            (request.method == "POST" ? request.body.to_string() : request.url.substr(19)));
        }
        return lines;
    }
    std::string last_header(const char* name) { return header_of(transport_.asked().back(), name); }

    RequestDefaults defaults_;
};

TEST_F(Deletes, ABatchCarriesACrc32cAndNoMd5) {
    ASSERT_TRUE(remove_many({"a", "b"}).value());
    EXPECT_EQ(last_header("x-amz-sdk-checksum-algorithm"), "CRC32C");
    EXPECT_EQ(last_header("x-amz-checksum-crc32c").size(), 8U);
    EXPECT_EQ(last_header("content-md5"), "");
}

TEST_F(Deletes, AStoreThatWantsMd5GetsItFromThenOn) {
    transport_.answer_with([](const HttpRequest& request) {
        return header_of(request, "content-md5").empty() ? refusal(400, "MissingContentMD5")
                                                         : HttpResponse{200, {}, kNothingFailed};
    });
    EXPECT_TRUE(remove_many({"a"}).value());
    EXPECT_EQ(transport_.asked().size(), 2U);
    EXPECT_EQ(last_header("x-amz-checksum-crc32c"), "");
    EXPECT_TRUE(remove_many({"b"}).value());
    EXPECT_EQ(transport_.asked().size(), 3U);
}

TEST_F(Deletes, WithoutChecksumHeadersItIsMd5AtOnce) {
    defaults_.checksums = false;
    EXPECT_TRUE(remove_many({"a"}).value());
    EXPECT_EQ(transport_.asked().size(), 1U);
    EXPECT_EQ(last_header("x-amz-checksum-crc32c"), "");
    EXPECT_NE(last_header("content-md5"), "");
}

TEST_F(Deletes, WhereThereIsNoMd5TheyGoOneByOne) {
    transport_.answer_with([](const HttpRequest& request) {
        return request.method == "POST" ? refusal(400, "InvalidRequest") : HttpResponse{204, {}, ""};
    });
    EXPECT_TRUE(remove_many({"a", {"b", "\"x\""}}, kNoMd5).value());
    EXPECT_THAT(asked(), ElementsAre(HasSubstr("POST"), "DELETE /a", "DELETE /b"));
    EXPECT_EQ(last_header("if-match"), "\"x\"");
}

TEST_F(Deletes, ARefusalIsTold) {
    transport_.answer_with([](const HttpRequest&) { return refusal(403, "AccessDenied"); });
    const Failures answer = remove_many({"a"});
    ASSERT_FALSE(answer.value());
    EXPECT_EQ(answer.value().error().errno_value, EACCES);
    EXPECT_EQ(transport_.asked().size(), 1U);
}

TEST_F(Deletes, NamesThatXmlChangesGoOneByOne) {
    transport_.answer_with([](const HttpRequest& request) {
        return HttpResponse{request.method == "POST" ? 200 : 204, {}, request.method == "POST" ? kNothingFailed : ""};
    });
    EXPECT_TRUE(remove_many({{"Icon\r", "\"x\""}, "plain", " blank"}).value());
    EXPECT_THAT(asked(), ElementsAre("DELETE /Icon%0D", "DELETE /%20blank", HasSubstr("<Key>plain</Key></Object></D")));
    EXPECT_EQ(header_of(transport_.asked().front(), "if-match"), "\"x\"");
}

TEST_F(Deletes, AnOddNameThatCannotBeRemovedIsNamed) {
    transport_.answer_with([](const HttpRequest& request) {
        return request.method == "POST" ? HttpResponse{200, {}, kNothingFailed} : refusal(403, "AccessDenied");
    });
    const Failures answer = remove_many({"plain", "Icon\r"});
    ASSERT_TRUE(answer.value());
    ASSERT_EQ(answer.value()->size(), 1U);
    EXPECT_EQ(answer.value()->front().key, "Icon\r");
    EXPECT_EQ(answer.value()->front().error.errno_value, EACCES);
}

TEST_F(Deletes, AnotherVersionIsNamedAndStays) {
    transport_.answer_with(200,
                           "<DeleteResult><Error><Key>a</Key><Code>PreconditionFailed</Code></Error>"
                           "<Error><Key>b</Key><Code>NoSuchKey</Code></Error></DeleteResult>");
    const Failures answer = remove_many({{"a", "\"x\""}, {"b", "\"y\""}});
    ASSERT_TRUE(answer.value());
    ASSERT_EQ(answer.value()->size(), 1U);
    EXPECT_EQ(answer.value()->front().key, "a");
    EXPECT_EQ(answer.value()->front().error.errno_value, ESTALE);
}

// The attempt whose answer was lost may have removed it, and what is there is another mount's: or that attempt had no
// effect, which the caller of a batch can find out.
TEST_F(Deletes, AnotherVersionAfterALostAnswerIsSuccessAndToldOfABatch) {
    int attempts = 0;
    transport_.answer_with([&attempts](const HttpRequest& request) -> Result<HttpResponse> {
        if (++attempts == 1) {
            return refusal(500, "InternalError");
        }
        return request.method == "DELETE"
                   ? refusal(412, "PreconditionFailed")
                   : HttpResponse{
                         200,
                         {},
                         "<DeleteResult><Error><Key>a</Key><Code>PreconditionFailed</Code></Error></DeleteResult>"};
    });
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_EQ(attempts, 2);
    attempts = 0;
    const Failures answer = remove_many({{"a", "\"x\""}});
    ASSERT_TRUE(answer.value());
    ASSERT_EQ(answer.value()->size(), 1U);
    EXPECT_EQ(answer.value()->front().error.errno_value, ESTALE);
    EXPECT_TRUE(answer.value()->front().error.outcome_unknown);
    EXPECT_EQ(attempts, 2);
}

// It may have been there before the attempt that had no effect.
TEST_F(Deletes, WhoJudgesByItselfIsToldOfAnotherVersionAfterALostAnswer) {
    int attempts = 0;
    transport_.answer_with([&attempts](const HttpRequest& request) -> Result<HttpResponse> {
        if (request.method == "HEAD") {
            return HttpResponse{200, {{"etag", "\"y\""}, {"content-length", "1"}}, ""};
        }
        return ++attempts == 1 ? refusal(500, "InternalError") : refusal(412, "PreconditionFailed");
    });
    RemoveRequest version("a", "\"x\"");
    version.is_judged_by_caller = true;
    const auto removed = remove(version);
    ASSERT_FALSE(removed.value());
    EXPECT_EQ(removed.value().error().errno_value, ESTALE);
    EXPECT_TRUE(removed.value().error().outcome_unknown);
    // One by one, since XML changes its name.
    attempts = 0;
    const Failures answer = remove_many({{"a\r", "\"x\""}});
    ASSERT_TRUE(answer.value());
    EXPECT_EQ(answer.value()->size(), 1U);
}

std::string failed_key(const std::string& key, const std::string& code) {
    return "<Error><Key>" + key + "</Key><Code>" + code + "</Code></Error>";
}
HttpResponse delete_result(const std::string& failures) {
    return {200, {}, "<DeleteResult>" + failures + "</DeleteResult>"};
}

// Another mount may have written it anew by then.
TEST_F(Deletes, WhatIsDeletedIsNotNamedAgain) {
    for (const bool with_md5 : {false, true}) {
        defaults_.checksums = !with_md5;
        const std::size_t before = asked().size();
        transport_.answer_with([attempts = 0](const HttpRequest&) mutable {
            return delete_result(++attempts == 1 ? failed_key("a", "SlowDown") : "");
        });
        const Failures answer = remove_many({{"a", "\"x\""}, {"b", "\"y\""}});
        ASSERT_TRUE(answer.value());
        EXPECT_THAT(*answer.value(), IsEmpty());
        ASSERT_EQ(asked().size(), before + 2);
        EXPECT_THAT(asked()[before], HasSubstr("<Key>b</Key>"));
        EXPECT_THAT(asked()[before + 1], HasSubstr("<Key>a</Key>"));
        EXPECT_THAT(asked()[before + 1], Not(HasSubstr("<Key>b</Key>")));
        const Payload body = Payload::from_string(asked()[before + 1].substr(std::string("POST ").size()));
        EXPECT_EQ(last_header("x-amz-checksum-crc32c"), with_md5 ? "" : crc32c_base64(crc32c(body)));
        EXPECT_EQ(last_header("content-md5"), with_md5 ? base64_encode(md5(body).value()) : "");
    }
}

// An attempt that did not name it has not deleted it.
TEST_F(Deletes, AnotherVersionIsToldAlsoWhereALaterAttemptHadNoAnswer) {
    transport_.answer_with([attempts = 0](const HttpRequest&) mutable {
        switch (++attempts) {
            case 1:
                return delete_result(failed_key("a", "SlowDown") + failed_key("c", "PreconditionFailed"));
            case 2:
                return refusal(500, "InternalError");
            default:
                return delete_result(failed_key("a", "PreconditionFailed"));
        }
    });
    const Failures answer = remove_many({{"a", "\"x\""}, {"b", "\"y\""}, {"c", "\"z\""}});
    ASSERT_TRUE(answer.value());
    ASSERT_EQ(answer.value()->size(), 2U);
    EXPECT_EQ(answer.value()->front().key, "c");
    EXPECT_EQ(answer.value()->front().error.errno_value, ESTALE);
    EXPECT_FALSE(answer.value()->front().error.outcome_unknown);
    EXPECT_EQ(answer.value()->back().key, "a");
    EXPECT_TRUE(answer.value()->back().error.outcome_unknown);
}

TEST_F(Deletes, WhereAnAnswerNamesOtherKeysAllAreNamedAgain) {
    transport_.answer_with([attempts = 0](const HttpRequest&) mutable {
        return delete_result(++attempts == 1 ? failed_key("A", "SlowDown") : "");
    });
    ASSERT_TRUE(remove_many({"a", "b"}).value());
    ASSERT_EQ(asked().size(), 2U);
    EXPECT_EQ(asked().front(), asked().back());
}

// Answers HEAD with this ETag, and a pinned DELETE with 501.
ScriptedTransport::Answer refusing_conditions(std::string etag) {
    return [etag = std::move(etag)](const HttpRequest& request) {
        if (request.method == "HEAD") {
            return etag.empty() ? HttpResponse{404, {}, ""} : HttpResponse{200, object_headers(etag), ""};
        }
        return header_of(request, "if-match").empty() ? HttpResponse{204, {}, ""} : refusal(501, "NotImplemented");
    };
}

TEST_F(Deletes, WhereConditionsAreRefusedTheVersionIsLookedAt) {
    transport_.answer_with(refusing_conditions("\"x\""));
    const std::vector<std::string> refused{"DELETE /a", "HEAD /a", "DELETE /a"};
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_EQ(asked(), refused);
    EXPECT_TRUE(remove({"a", "x"}).value());
    EXPECT_EQ(asked().size(), 6U);
    // Seen twice: it is how this store is.
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_EQ(asked().size(), 8U);
    EXPECT_EQ(last_header("if-match"), "");
}

// Answers HEAD with this ETag, and a DELETE that is pinned to it with 412; another takes its answers from `unpinned`.
ScriptedTransport::Answer refusing_its_own_etag(const std::string& etag, std::function<HttpResponse()> unpinned) {
    return [etag, unpinned = std::move(unpinned)](const HttpRequest& request) {
        if (request.method == "HEAD") {
            return HttpResponse{200, object_headers(etag), ""};
        }
        return header_of(request, "if-match").empty() ? unpinned() : refusal(412, "PreconditionFailed");
    };
}

TEST_F(Deletes, OfTheVersionWhoseETagIsRefusedIsMadeAfterALook) {
    transport_.answer_with(refusing_its_own_etag("\"x\"", [] { return HttpResponse{204, {}, ""}; }));
    for (int times = 1; times <= 4; ++times) {
        EXPECT_TRUE(remove({"a", "\"x\""}).value());
        // Of another ETag it says nothing: each is asked with first.
        EXPECT_EQ(asked().size(), 3U * static_cast<std::size_t>(times));
    }
    EXPECT_EQ(remove({"a", "\"y\""}).value().error().errno_value, ESTALE);
}

// As with credentials that may not look.
TEST_F(Deletes, OfAVersionWhoseETagIsRefusedFailsAsRefusedWhereItCannotBeLookedAt) {
    transport_.answer_with([](const HttpRequest& request) {
        return request.method == "HEAD" ? HttpResponse{403, {}, ""} : refusal(412, "PreconditionFailed");
    });
    EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
}

TEST_F(Deletes, OfTheVersionWhoseETagIsRefusedLooksBeforeEachAttempt) {
    std::string etag = "\"x\"";
    transport_.answer_with([&etag](const HttpRequest& request) {
        return refusing_its_own_etag(etag, [&etag] {
            // Another mount saves it before the next one.
            etag = "\"another\"";
            return refusal(503, "SlowDown");
        })(request);
    });
    EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
    EXPECT_THAT(asked(), ElementsAre("DELETE /a", "HEAD /a", "DELETE /a", "HEAD /a"));
}

TEST_F(Deletes, WhereConditionsAreRefusedAnotherVersionStays) {
    transport_.answer_with(refusing_conditions("\"another\""));
    for (int times = 0; times < 3; ++times) {
        EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
        EXPECT_THAT(asked().back(), HasSubstr("HEAD"));
    }
    transport_.answer_with(refusing_conditions(""));
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_THAT(asked().back(), HasSubstr("HEAD"));
}

// Refuses If-Match, and fails the first removal without; the next look finds this ETag.
ScriptedTransport::Answer failing_once(HttpResponse failed, std::string etag_then) {
    return [failed = std::move(failed), etag_then = std::move(etag_then),
            has_failed = false](const HttpRequest& request) mutable {
        if (request.method == "HEAD") {
            return HttpResponse{200, object_headers(has_failed ? etag_then : "\"x\""), ""};
        }
        if (!header_of(request, "if-match").empty()) {
            return refusal(501, "NotImplemented");
        }
        return std::exchange(has_failed, true) ? HttpResponse{204, {}, ""} : failed;
    };
}

TEST_F(Deletes, WhereConditionsAreRefusedTheVersionIsLookedAtBeforeEachAttempt) {
    const std::vector<std::string> removed_once{"DELETE /a", "HEAD /a", "DELETE /a", "HEAD /a"};
    // The first attempt may have removed the version: that is success, and the other one stays.
    transport_.answer_with(failing_once(refusal(500, "InternalError"), "\"y\""));
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_EQ(asked(), removed_once);
    transport_.answer_with(failing_once(refusal(503, "SlowDown"), "\"y\""));
    EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
    EXPECT_EQ(asked().size(), 8U);
    EXPECT_THAT(asked().back(), HasSubstr("HEAD"));
    transport_.answer_with(failing_once(refusal(503, "SlowDown"), "\"x\""));
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
    EXPECT_EQ(asked().size(), 13U);
    EXPECT_THAT(asked().back(), HasSubstr("DELETE"));
}

// Amazon S3's 503 to a HEAD has no body, and looks like that of a proxy.
TEST_F(Deletes, ALookThatFailedOnceRemovesNothing) {
    transport_.answer_with([has_failed = false](const HttpRequest& request) mutable {
        if (request.method != "HEAD") {
            return refusal(501, "NotImplemented");
        }
        return std::exchange(has_failed, true) ? HttpResponse{200, object_headers("\"y\""), ""}
                                               : HttpResponse{503, {}, ""};
    });
    EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
    EXPECT_EQ(asked(), (std::vector<std::string>{"DELETE /a", "HEAD /a", "HEAD /a"}));
}

TEST_F(Deletes, OneRefusalOfAConditionIsNotHowTheStoreIs) {
    for (int times = 0; times < 3; ++times) {
        transport_.answer_with(refusing_conditions("\"x\""));
        EXPECT_TRUE(remove({"a", "\"x\""}).value());
        transport_.answer_with(204, "");
        EXPECT_TRUE(remove({"a", "\"x\""}).value());
        EXPECT_EQ(last_header("if-match"), "\"x\"");
    }
}

// Whoever asked for it may be overtaken by another mount while it waits to be tried again.
TEST_F(Deletes, WhatIsNoLongerWantedIsNotSentAgain) {
    bool wanted = true;
    transport_.answer_with([&wanted](const HttpRequest&) {
        wanted = false;
        return refusal(500, "InternalError");
    });
    RemoveRequest request("a", "\"x\"");
    request.may_send = [&wanted] { return wanted; };
    const auto alone = remove(request);
    ASSERT_FALSE(alone.value());
    EXPECT_EQ(alone->error().errno_value, EIO);
    EXPECT_TRUE(alone->error().outcome_unknown);
    EXPECT_EQ(asked().size(), 1U);
    wanted = true;
    EXPECT_FALSE(remove_many({"b", request}).value());
    EXPECT_EQ(asked().size(), 2U);
    EXPECT_FALSE(remove_many({request}).value()) << "not wanted from the beginning";
    EXPECT_EQ(asked().size(), 2U);
}

TEST_F(Deletes, AVersionThatIsNotThereIsTold) {
    transport_.answer_with([](const HttpRequest&) { return refusal(412, "PreconditionFailed"); });
    EXPECT_EQ(remove({"a", "\"x\""}).value().error().errno_value, ESTALE);
    transport_.answer_with([](const HttpRequest&) { return refusal(404, "NoSuchKey"); });
    EXPECT_TRUE(remove({"a", "\"x\""}).value());
}

}  // namespace
}  // namespace ckptfs::s3
