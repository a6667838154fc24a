// SPDX-License-Identifier: Apache-2.0
#include "base/retry.h"

#include <gtest/gtest.h>

#include <limits>

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr double kAlmostOne = 0.999999;

Error retryable_error() {
    Error error;
    error.retryable = true;
    return error;
}

TEST(Backoff, DoublesUpToItsLimit) {
    const RetryPolicy policy{milliseconds(100), seconds(2), minutes(5)};
    EXPECT_EQ(backoff(policy, 1, kAlmostOne), milliseconds(99));
    EXPECT_EQ(backoff(policy, 2, kAlmostOne), milliseconds(199));
    EXPECT_EQ(backoff(policy, 5, kAlmostOne), milliseconds(1'599));
    EXPECT_EQ(backoff(policy, 6, kAlmostOne), milliseconds(1'999));
    EXPECT_EQ(backoff(policy, std::numeric_limits<int>::max(), kAlmostOne), milliseconds(1'999));
}

TEST(Backoff, SpreadsOverTheWholeInterval) {
    const RetryPolicy policy{milliseconds(100), seconds(2), minutes(5)};
    EXPECT_EQ(backoff(policy, 4, 0.0), milliseconds(0));
    EXPECT_EQ(backoff(policy, 4, 0.25), milliseconds(200));
    EXPECT_EQ(backoff(policy, 4, 0.5), milliseconds(400));
}

TEST(Backoff, NeverExceedsALimitBelowTheFirstDelay) {
    const RetryPolicy policy{milliseconds(100), milliseconds(10), minutes(5)};
    EXPECT_EQ(backoff(policy, 1, kAlmostOne), milliseconds(9));
}

TEST(DelayBeforeRetry, GivesUpOnErrorsThatStay) {
    EXPECT_EQ(delay_before_retry({}, Error{}, 1, seconds(0), 0.5), std::nullopt);
}

TEST(DelayBeforeRetry, GivesUpAfterTheTimeWithoutProgress) {
    const RetryPolicy policy{milliseconds(100), seconds(20), seconds(30)};
    EXPECT_TRUE(delay_before_retry(policy, retryable_error(), 1, seconds(29), 0.5).has_value());
    EXPECT_FALSE(delay_before_retry(policy, retryable_error(), 1, seconds(30), 0.5).has_value());
    EXPECT_FALSE(delay_before_retry(policy, retryable_error(), 1, seconds(31), 0.5).has_value());
}

TEST(DelayBeforeRetry, CutsTheLastWaitToTheDeadline) {
    const RetryPolicy policy{seconds(10), seconds(20), seconds(30)};
    EXPECT_EQ(delay_before_retry(policy, retryable_error(), 1, seconds(28), 0.9), seconds(2));
    EXPECT_EQ(delay_before_retry(policy, retryable_error(), 1, seconds(0), 0.9), seconds(9));
}

TEST(DelayBeforeRetry, NumberOfAttemptsAloneNeverEndsIt) {
    EXPECT_TRUE(delay_before_retry({}, retryable_error(), 100'000, seconds(1), 0.5).has_value());
}

TEST(AttemptTimeout, EndsWithTheOperationButGivesAFairChance) {
    const RetryPolicy policy{.retry_for = std::chrono::seconds(100)};
    const Milliseconds stall = std::chrono::seconds(20);
    EXPECT_EQ(attempt_timeout(policy, stall, Milliseconds(0)), stall);
    EXPECT_EQ(attempt_timeout(policy, stall, std::chrono::seconds(90)), std::chrono::seconds(10));
    EXPECT_EQ(attempt_timeout(policy, stall, std::chrono::seconds(99)), std::chrono::seconds(5));
    EXPECT_EQ(attempt_timeout(policy, std::chrono::seconds(300), Milliseconds(0)), std::chrono::seconds(100));
}

TEST(DelayBeforeRetry, WhatTheServerAskedForComesBeforeBackoff) {
    const RetryPolicy policy{seconds(1), seconds(20), seconds(60)};
    EXPECT_EQ(delay_before_retry(policy, retryable_error(), 1, seconds(0), 0.5, seconds(10)), milliseconds(10'500));
    EXPECT_EQ(delay_before_retry(policy, retryable_error(), 1, seconds(55), 0.5, seconds(10)), seconds(5));
    EXPECT_EQ(delay_before_retry(policy, retryable_error(), 1, seconds(0), 0.5, std::chrono::hours(9)), seconds(60));
    EXPECT_FALSE(delay_before_retry(policy, retryable_error(), 1, seconds(60), 0.5, seconds(10)));
}

}  // namespace
}  // namespace ckptfs
