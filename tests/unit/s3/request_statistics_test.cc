// SPDX-License-Identifier: Apache-2.0
#include "s3/request_statistics.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "s3/access_log.h"

namespace ckptfs::s3 {
namespace {

Attempt attempt(std::string_view operation, std::string_view error, int milliseconds) {
    Attempt attempt;
    attempt.operation = operation;
    attempt.error = error;
    attempt.duration = std::chrono::milliseconds(milliseconds);
    return attempt;
}

TEST(RequestStatistics, CountByOperationAndOutcome) {
    RequestStatistics statistics;
    statistics.ended(attempt("UploadPart", "", 5));
    statistics.ended(attempt("UploadPart", "", 6));
    statistics.ended(attempt("UploadPart", "SlowDown", 60'000));
    statistics.ended(attempt("HeadObject", "404", 1));
    const auto operations = statistics.operations();
    ASSERT_EQ(operations.size(), 2U);
    EXPECT_EQ(operations[0].operation, "HeadObject");
    EXPECT_EQ(operations[0].succeeded, 0U);
    EXPECT_EQ(operations[1].succeeded, 2U);
    EXPECT_EQ(operations[1].failed, (std::map<std::string, std::uint64_t>{{"SlowDown", 1}}));
    EXPECT_EQ(operations[1].durations[0], 1U) << "5 ms is within the first bound";
    EXPECT_EQ(operations[1].durations[1], 1U);
    EXPECT_EQ(operations[1].durations.back(), 1U);
    EXPECT_NEAR(operations[1].total_seconds, 60.011, 1e-9);
}

TEST(RequestStatistics, AStoreThatMakesCodesUpTakesNoMemory) {
    RequestStatistics statistics;
    for (int i = 0; i < 1000; ++i) {
        statistics.ended(attempt("GetObject", "Code" + std::to_string(i), 1));
    }
    const auto failed = statistics.operations().front().failed;
    EXPECT_EQ(failed.size(), RequestStatistics::kMostErrors + 1);
    EXPECT_EQ(failed.at(RequestStatistics::kOtherError), 1000 - RequestStatistics::kMostErrors);
    EXPECT_EQ(failed.at("Code0"), 1U);
}

TEST(AccessLog, HasALineForEveryAttempt) {
    Attempt part = attempt("UploadPart", "", 212);
    part.key = "run/a \"b\"\n";
    part.number = 2;
    part.status = 200;
    part.bytes_sent = 16;
    part.request_id = "4442";
    EXPECT_EQ(access_log_line(part),
              R"(UploadPart key="run/a \"b\"\\x0a" attempt=2 status=200 sent=16 received=0 ms=212.0 request=4442)");
    EXPECT_EQ(access_log_line(attempt("HeadObject", "ETIMEDOUT", 1)),
              R"(HeadObject key="" attempt=1 status=0 sent=0 received=0 ms=1.0 error=ETIMEDOUT)");
}

}  // namespace
}  // namespace ckptfs::s3
