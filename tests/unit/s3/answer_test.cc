// SPDX-License-Identifier: Apache-2.0
#include "s3/answer.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "aws/times.h"
#include "s3/error_table.h"

namespace ckptfs::s3 {
namespace {

constexpr const char* kDate = "Sat, 01 Jan 2022 00:00:00 GMT";

std::optional<WallTime> time_told_by(HttpResponse response) {
    Call call;
    StoreHabits habits;
    call.request.operation = "PutObject";
    call.request.method = "PUT";
    response.headers.emplace_back("date", kDate);
    const Result<HttpResponse> outcome = judged(call, "bucket", habits, std::move(response));
    return attempt_of(call, 1, outcome, Microseconds(0)).server_time;
}

TEST(Answer, ThatIsNotTheStoresOwnTellsNoTime) {
    const std::optional<WallTime> date = parse_http_date(kDate);
    ASSERT_TRUE(date);
    EXPECT_EQ(time_told_by({200, {}, ""}), date);
    EXPECT_EQ(time_told_by({403, {}, "<Error><Code>AccessDenied</Code></Error>"}), date);
    EXPECT_EQ(time_told_by({404, {{"x-amz-request-id", "r"}}, ""}), date) << "as to HEAD";
    EXPECT_EQ(time_told_by({502, {}, "<html>Bad Gateway</html>"}), std::nullopt);
    EXPECT_EQ(time_told_by({503, {}, ""}), std::nullopt);
}

Error error_of(StoreHabits& habits, const char* method, HttpResponse response) {
    Call call;
    call.request.operation = "AnyRequest";
    call.request.method = method;
    const Result<HttpResponse> outcome = judged(call, "bucket", habits, std::move(response));
    return outcome ? Error{} : outcome.error();
}

// "404 page not found": a proxy that has lost its routes says so of every key.
TEST(Answer, OfAProxyDoesNotSayThatAKeyIsNotThere) {
    const HttpResponse by_proxy{404, {}, ""};
    const HttpResponse by_store{404, {{"x-amz-request-id", "r"}}, ""};
    const HttpResponse named{404, {}, "<Error><Code>NoSuchKey</Code></Error>"};
    StoreHabits habits;
    EXPECT_EQ(error_of(habits, "HEAD", by_proxy).errno_value, ENOENT) << "some stores number no answers";
    for (const char* method : {"HEAD", "GET", "PUT", "DELETE"}) {
        const Error absent = error_of(habits, method, by_store);
        EXPECT_EQ(absent.errno_value, ENOENT);
        EXPECT_FALSE(absent.retryable);
        const Error passing = error_of(habits, method, by_proxy);
        EXPECT_EQ(passing.errno_value, EIO) << method;
        EXPECT_EQ(recovery_of(passing), Recovery::kRetry) << method;
        EXPECT_NE(passing.message.find("proxy"), std::string::npos);
        EXPECT_EQ(error_of(habits, method, named).errno_value, ENOENT);
    }
}

}  // namespace
}  // namespace ckptfs::s3
