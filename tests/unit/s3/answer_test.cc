// SPDX-License-Identifier: Apache-2.0
#include "s3/answer.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "aws/times.h"

namespace ckptfs::s3 {
namespace {

constexpr const char* kDate = "Sat, 01 Jan 2022 00:00:00 GMT";

std::optional<WallTime> time_told_by(HttpResponse response) {
    Call call;
    call.request.operation = "PutObject";
    call.request.method = "PUT";
    response.headers.emplace_back("date", kDate);
    const Result<HttpResponse> outcome = judged(call, "bucket", std::move(response));
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

}  // namespace
}  // namespace ckptfs::s3
