// SPDX-License-Identifier: Apache-2.0
#include "s3/error_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace ckptfs::s3 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FailedRequest failed(int status, const std::string& code) {
    FailedRequest request;
    request.operation = "PutObject";
    request.bucket = "b";
    request.key = "dir/key";
    request.status = status;
    request.body.code = code;
    request.body.message = "the store's words";
    request.request_id = "REQ1";
    return request;
}

struct Case {
    int status;
    const char* code;
    int errno_value;
    Recovery recovery;
};

class ErrorTable : public ::testing::TestWithParam<Case> {};

TEST_P(ErrorTable, GivesErrnoAndRecovery) {
    const Case& expected = GetParam();
    const Error error = store_error(failed(expected.status, expected.code));
    EXPECT_EQ(error.errno_value, expected.errno_value);
    EXPECT_EQ(recovery_of(error), expected.recovery);
    EXPECT_EQ(error.retryable, expected.recovery != Recovery::kNone);
    EXPECT_EQ(error.s3_code, expected.code);
    EXPECT_EQ(error.http_status, expected.status);
    EXPECT_EQ(error.request_id, "REQ1");
    EXPECT_THAT(error.message, HasSubstr("PutObject s3://b/dir/key"));
    EXPECT_THAT(error.message, HasSubstr("REQ1"));
}

INSTANTIATE_TEST_SUITE_P(
    Codes, ErrorTable,
    ::testing::Values(
        Case{403, "AccessDenied", EACCES, Recovery::kNone},
        Case{403, "SignatureDoesNotMatch", EACCES, Recovery::kRefreshCredentials},
        Case{403, "InvalidAccessKeyId", EACCES, Recovery::kRefreshCredentials},
        Case{400, "ExpiredToken", EACCES, Recovery::kRefreshCredentials},
        Case{403, "InvalidTokenId", EACCES, Recovery::kRefreshCredentials},
        Case{403, "RequestTimeTooSkewed", EACCES, Recovery::kCorrectClock},
        Case{403, "InvalidObjectState", EIO, Recovery::kNone}, Case{404, "NoSuchKey", ENOENT, Recovery::kNone},
        Case{404, "NoSuchBucket", EIO, Recovery::kNone}, Case{404, "NoSuchUpload", EIO, Recovery::kNone},
        Case{409, "ConditionalRequestConflict", EIO, Recovery::kRetry},
        Case{416, "InvalidRange", EINVAL, Recovery::kNone}, Case{400, "EntityTooLarge", EFBIG, Recovery::kNone},
        Case{400, "RequestTimeout", EIO, Recovery::kRetry}, Case{400, "BadDigest", EIO, Recovery::kRetryOnce},
        Case{301, "PermanentRedirect", EIO, Recovery::kNone}, Case{500, "InternalError", EIO, Recovery::kRetry},
        Case{503, "SlowDown", EIO, Recovery::kSlowDown}, Case{501, "NotImplemented", EOPNOTSUPP, Recovery::kNone},
        Case{403, "QuotaExceeded", EDQUOT, Recovery::kNone},
        // Codes of an error inside a 200 count, not the status.
        Case{200, "InternalError", EIO, Recovery::kRetry}, Case{200, "SlowDown", EIO, Recovery::kSlowDown},
        // Without a code the status has to do.
        Case{403, "", EACCES, Recovery::kNone}, Case{404, "", ENOENT, Recovery::kNone},
        Case{405, "", EOPNOTSUPP, Recovery::kNone}, Case{429, "", EIO, Recovery::kSlowDown},
        Case{502, "", EIO, Recovery::kRetry}, Case{503, "", EIO, Recovery::kSlowDown},
        Case{507, "", ENOSPC, Recovery::kNone}, Case{418, "Unheard", EINVAL, Recovery::kNone}));

TEST(StoreError, APreconditionMeansWhatTheRequestSays) {
    FailedRequest request = failed(412, "PreconditionFailed");
    EXPECT_EQ(store_error(request).errno_value, ESTALE);
    EXPECT_FALSE(store_error(request).retryable);
    request.precondition_errno = EEXIST;
    EXPECT_EQ(store_error(request).errno_value, EEXIST);
    EXPECT_EQ(store_error(failed(412, "")).errno_value, ESTALE);
}

// HEAD has no code, and an error inside a 200 no status.
TEST(StoreError, IsUnderstoodByCodeOrStatus) {
    for (const auto& [status, code] : {std::pair(412, "PreconditionFailed"), {412, ""}, {200, "PreconditionFailed"}}) {
        EXPECT_TRUE(is_condition_failed(store_error(failed(status, code)))) << status << code;
    }
    EXPECT_TRUE(is_condition_failed(condition_failed("PutObject", "b", "k", EEXIST)));
    for (const auto& [status, code] : {std::pair(501, "NotImplemented"), {501, ""}, {400, "NotImplemented"}}) {
        EXPECT_TRUE(is_not_implemented(store_error(failed(status, code)))) << status << code;
    }
    for (const auto& [status, code] : {std::pair(416, "InvalidRange"), {416, ""}}) {
        EXPECT_TRUE(is_range_outside(store_error(failed(status, code)))) << status << code;
    }
    EXPECT_TRUE(is_upload_gone(store_error(failed(404, "NoSuchUpload"))));
    for (const auto& [status, code] : {std::pair(404, "NoSuchKey"), {404, ""}, {409, "ConditionalRequestConflict"}}) {
        const Error error = store_error(failed(status, code));
        EXPECT_FALSE(is_condition_failed(error) || is_not_implemented(error) || is_range_outside(error) ||
                     is_upload_gone(error))
            << status << code;
    }
}

TEST(StoreError, SaysWhichRegionToName) {
    FailedRequest request = failed(301, "PermanentRedirect");
    request.region = "eu-north-1";
    EXPECT_THAT(store_error(request).message, HasSubstr("--region eu-north-1"));
    request = failed(400, "AuthorizationHeaderMalformed");
    request.body.region = "eu-south-1";
    EXPECT_THAT(store_error(request).message, HasSubstr("--region eu-south-1"));
}

TEST(StoreError, NamesTheRightThatIsMissing) {
    FailedRequest request = failed(403, "AccessDenied");
    EXPECT_THAT(store_error(request).message, HasSubstr("do not allow this operation here (s3:PutObject)"));
    request.operation = "DeleteObject";
    EXPECT_THAT(store_error(request).message, HasSubstr("(s3:DeleteObject)"));
    request.operation = "HeadObject";
    request.body.code.clear();
    EXPECT_THAT(store_error(request).message, HasSubstr("(s3:GetObject, and s3:ListBucket for"));
    request.body.code = "ExpiredToken";
    EXPECT_THAT(store_error(request).message, Not(HasSubstr("s3:GetObject")));
}

TEST(StoreError, KnowsAServerThatWantsTls) {
    EXPECT_TRUE(asks_for_tls("Client sent an HTTP request to an HTTPS server.\n"));
    EXPECT_TRUE(asks_for_tls("<center>The plain HTTP request was sent to HTTPS port</center>"));
    EXPECT_TRUE(asks_for_tls("Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />"));
    EXPECT_FALSE(asks_for_tls("Bad Request"));
    FailedRequest request = failed(400, "");
    request.wants_tls = true;
    EXPECT_THAT(store_error(request).message, HasSubstr("did you mean https:// instead of http://?"));
}

TEST(StoreError, TheOutcomeIsUnknownAfterAnInternalError) {
    EXPECT_TRUE(store_error(failed(500, "InternalError")).outcome_unknown);
    EXPECT_TRUE(store_error(failed(200, "InternalError")).outcome_unknown);
    EXPECT_TRUE(store_error(failed(504, "")).outcome_unknown);
    EXPECT_FALSE(store_error(failed(503, "SlowDown")).outcome_unknown);
    EXPECT_FALSE(store_error(failed(403, "AccessDenied")).outcome_unknown);
}

// Without a code it may be that of a proxy, which handed the request on and lost the answer.
TEST(StoreError, TheOutcomeIsUnknownWhereNoStoreSaysThatItIsUnavailable) {
    EXPECT_TRUE(store_error(failed(503, "")).outcome_unknown);
    EXPECT_TRUE(store_error(failed(408, "")).outcome_unknown);
    EXPECT_FALSE(store_error(failed(429, "")).outcome_unknown);
    EXPECT_FALSE(store_error(failed(503, "ServiceUnavailable")).outcome_unknown);
    EXPECT_FALSE(store_error(failed(400, "RequestTimeout")).outcome_unknown);
}

TEST(StoreError, TextFromOutsideIsEscaped) {
    FailedRequest request = failed(400, "Odd\x1b[31m");
    request.key = "a\nb";
    request.body.message = "words\r\nLOG: forged";
    request.request_id = "R\x07";
    const std::string message = store_error(request).message;
    for (const char* control : {"\n", "\r", "\x1b", "\x07"}) {
        EXPECT_THAT(message, Not(HasSubstr(control)));
    }
}

TEST(StoreError, AStoresWordsAreBounded) {
    FailedRequest request = failed(500, std::string(100'000, 'x'));
    request.body.message = std::string(100'000, 'y');
    request.request_id = std::string(100'000, 'z');
    Error error = store_error(request);
    EXPECT_EQ(error.s3_code, "UnusualCode");
    EXPECT_LT(error.message.size(), 3000U);
    EXPECT_LE(error.request_id.size(), 512U);
    for (const char* code : {"a\"b", "two words", "new\nline", "\xff"}) {
        EXPECT_EQ(store_error(failed(500, code)).s3_code, "UnusualCode");
    }
    EXPECT_EQ(store_error(failed(500, "XMinio.Some_Code-1")).s3_code, "XMinio.Some_Code-1");
}

}  // namespace
}  // namespace ckptfs::s3
