// SPDX-License-Identifier: Apache-2.0
#include "tools/leftover_policy.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const WallTime kNow = WallTime(std::chrono::seconds(1'700'000'000));
constexpr Milliseconds kDay = hours(24);

SeenMount mount(Milliseconds seen_before, std::optional<Milliseconds> mounted_before = std::nullopt) {
    SeenMount mount;
    mount.last_seen = kNow - seen_before;
    if (mounted_before) {
        mount.since = kNow - *mounted_before;
    }
    return mount;
}

TEST(LeftoverPolicy, WhatIsYoungIsLeft) {
    EXPECT_EQ(judge(kNow - hours(23), {}, kNow, kDay), Leftover::kYoung);
    EXPECT_EQ(judge(kNow + hours(1), {}, kNow, kDay), Leftover::kYoung);
    EXPECT_EQ(judge(kNow - hours(25), {}, kNow, kDay), Leftover::kAbandoned);
}

TEST(LeftoverPolicy, WhatALivingMountMayHaveBegunIsLeft) {
    EXPECT_EQ(judge(kNow - hours(25), {mount(minutes(10), hours(30))}, kNow, kDay), Leftover::kPerhapsInUse);
    EXPECT_EQ(judge(kNow - hours(25), {mount(minutes(10))}, kNow, kDay), Leftover::kPerhapsInUse);
    EXPECT_EQ(judge(kNow - hours(25), {mount(hours(2)), mount(minutes(1))}, kNow, kDay), Leftover::kPerhapsInUse);
    // Two of its beats were lost after five minutes each.
    EXPECT_EQ(judge(kNow - hours(25), {mount(minutes(43))}, kNow, kDay), Leftover::kPerhapsInUse);
    // Its clock may be a little ahead of the store's.
    EXPECT_EQ(judge(kNow - hours(25), {mount(minutes(10), hours(25) - minutes(5))}, kNow, kDay),
              Leftover::kPerhapsInUse);
}

TEST(LeftoverPolicy, WhatMayHaveBegunJustNowIsLeft) {
    EXPECT_EQ(judge(WallTime{}, {mount(minutes(10), hours(24))}, kNow, kDay), Leftover::kPerhapsInUse);
    EXPECT_EQ(judge(WallTime{}, {}, kNow, kDay), Leftover::kPerhapsInUse);
}

TEST(LeftoverPolicy, WhatIsOlderThanAllThatLiveIsAbandoned) {
    EXPECT_EQ(judge(kNow - hours(25), {mount(minutes(10), hours(24))}, kNow, kDay), Leftover::kAbandoned);
    EXPECT_EQ(judge(kNow - hours(25), {mount(hours(1), hours(30))}, kNow, kDay), Leftover::kAbandoned);
}

}  // namespace
}  // namespace ckptfs
