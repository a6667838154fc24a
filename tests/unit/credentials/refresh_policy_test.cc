// SPDX-License-Identifier: Apache-2.0
#include "credentials/refresh_policy.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr WallTime kNow{hours(1000)};

TEST(RefreshPolicy, LongTermKeysAreNotRefreshed) {
    EXPECT_EQ(refresh_times(std::nullopt, kNow, 0.5), std::nullopt);
}

TEST(RefreshPolicy, BetweenFifteenAndTenMinutesBeforeTheEnd) {
    const WallTime end = kNow + hours(6);
    EXPECT_EQ(refresh_times(end, kNow, 0), (RefreshTimes{end - minutes(15), end}));
    EXPECT_EQ(refresh_times(end, kNow, 0.5), (RefreshTimes{end - seconds(750), end}));
    EXPECT_GT(refresh_times(end, kNow, 0.999)->refresh, end - seconds(601));
    EXPECT_LE(refresh_times(end, kNow, 0.999)->refresh, end - minutes(10));
}

TEST(RefreshPolicy, NotBeforeHalfTheirTimeHasPassed) {
    // The shortest session of AssumeRole.
    const WallTime end = kNow + minutes(15);
    EXPECT_EQ(refresh_times(end, kNow, 0)->refresh, kNow + seconds(450));
    EXPECT_GT(refresh_times(end, kNow, 0.999)->refresh, kNow + minutes(9));
    EXPECT_LT(refresh_times(end, kNow, 0.999)->refresh, end);
}

TEST(RefreshPolicy, AskedEverSoonerWhereTheSourceKeepsThemToTheEnd) {
    const WallTime end = kNow + minutes(16);
    WallTime now = kNow;
    int asked = 0;
    while (end - now > minutes(1)) {
        now = refresh_times(end, now, 0)->refresh;
        ++asked;
    }
    EXPECT_EQ(asked, 4);
}

TEST(RefreshPolicy, ExpiredOnArrivalAreUsedForAMinute) {
    const RefreshTimes minute{kNow + minutes(1), kNow + minutes(1)};
    EXPECT_EQ(refresh_times(kNow - hours(1), kNow, 0.5), minute);
    EXPECT_EQ(refresh_times(kNow, kNow, 0.5), minute);
}

TEST(RefreshPolicy, FailuresAreFollowedByEverLongerPauses) {
    EXPECT_EQ(pause_after_failures(1, 0), Milliseconds(500));
    EXPECT_LE(pause_after_failures(1, 0.999), seconds(1));
    EXPECT_EQ(pause_after_failures(4, 0), seconds(4));
    EXPECT_EQ(pause_after_failures(100, 0), seconds(30));
    EXPECT_LE(pause_after_failures(1'000'000, 0.999), minutes(1));
}

TEST(RefreshPolicy, OthersAfterARefusalAreUsedAtOnce) {
    EXPECT_EQ(pause_after_refusals(1, false, 0.5), Milliseconds(0));
}

TEST(RefreshPolicy, ASourceWhoseCredentialsAreNotTakenIsAskedEverLess) {
    EXPECT_EQ(pause_after_refusals(1, true, 0), Milliseconds(500));
    EXPECT_EQ(pause_after_refusals(3, true, 0), seconds(2));
    EXPECT_EQ(pause_after_refusals(2, false, 0), seconds(1));
    EXPECT_LE(pause_after_refusals(1'000'000, true, 0.999), seconds(15));
}

}  // namespace
}  // namespace ckptfs
