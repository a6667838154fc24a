// SPDX-License-Identifier: Apache-2.0
#include "write/encoding_pace.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

constexpr std::uint64_t kEnough = 1000;
constexpr std::size_t kMany = 100;

class EncodingPaceTest : public ::testing::Test {
protected:
    // Frames every 10 ms for so long; the last decision.
    EncodeEffort run(Milliseconds time, std::size_t waiting, std::uint64_t leaving) {
        EncodeEffort effort = EncodeEffort::kNormal;
        for (const SteadyTime end = now_ + time; now_ < end; now_ += Milliseconds(10)) {
            effort = pace_.choose(now_, waiting, leaving);
        }
        return effort;
    }

    SteadyTime now_{std::chrono::hours(100)};
    EncodingPace pace_{2, kEnough};
};

TEST_F(EncodingPaceTest, CompressesWhileTheStoreIsWhatIsWaitedFor) {
    EXPECT_EQ(run(Milliseconds(60'000), kMany, kEnough), EncodeEffort::kNormal);
}

TEST_F(EncodingPaceTest, CompressesWhatComesSlowly) {
    EXPECT_EQ(run(Milliseconds(60'000), 1, 0), EncodeEffort::kNormal);
}

TEST_F(EncodingPaceTest, StepsDownWhenTheStoreStarvesForLong) {
    EXPECT_EQ(run(Milliseconds(200), kMany, 0), EncodeEffort::kNormal);
    EXPECT_EQ(run(Milliseconds(200), kMany, 0), EncodeEffort::kLeast);
    EXPECT_TRUE(pace_.hurried());
}

TEST_F(EncodingPaceTest, ABurstIsNoReason) {
    for (int burst = 0; burst < 100; ++burst) {
        EXPECT_EQ(run(Milliseconds(200), kMany, 0), EncodeEffort::kNormal);
        EXPECT_EQ(run(Milliseconds(250), kMany, kEnough), EncodeEffort::kNormal);
    }
}

TEST_F(EncodingPaceTest, LearnsFromSavesTooShortToTell) {
    for (int save = 0; save < 3; ++save) {
        EXPECT_FALSE(pace_.hurried());
        run(Milliseconds(100), kMany, 0);
        run(Milliseconds(30), 1, 0);
        now_ += std::chrono::seconds(10);
    }
    EXPECT_TRUE(pace_.hurried());
}

TEST_F(EncodingPaceTest, APauseIsNoStarving) {
    for (int save = 0; save < 5; ++save) {
        EXPECT_EQ(pace_.choose(now_, kMany, 0), EncodeEffort::kNormal);
        now_ += std::chrono::seconds(10);
    }
}

TEST_F(EncodingPaceTest, IsPatientWhileTheStoreFallsBehind) {
    for (std::uint64_t leaving = 0; leaving < kEnough; leaving += kEnough / 20) {
        EXPECT_EQ(run(Milliseconds(50), kMany, leaving), EncodeEffort::kNormal);
    }
}

TEST_F(EncodingPaceTest, ThenCompressesOnlyWhatTheStoreIsTooSlowFor) {
    run(Milliseconds(400), kMany, 0);
    EXPECT_EQ(run(Milliseconds(1000), kMany, kEnough), EncodeEffort::kNormal);
    EXPECT_EQ(run(Milliseconds(1000), kMany, kEnough - 1), EncodeEffort::kLeast);
}

TEST_F(EncodingPaceTest, LeavesTheProcessorsToWhoeverSends) {
    run(Milliseconds(400), kMany, 0);
    for (int frame = 0; frame < 100; ++frame) {
        pace_.note_processor_times(Milliseconds(1), Milliseconds(1));
    }
    EXPECT_EQ(run(Milliseconds(1000), kMany, kEnough), EncodeEffort::kLeast);
    for (int frame = 0; frame < 100; ++frame) {
        pace_.note_processor_times(Milliseconds(1), Milliseconds(0));
    }
    EXPECT_EQ(run(Milliseconds(1000), kMany, kEnough), EncodeEffort::kNormal);
}

TEST_F(EncodingPaceTest, RemembersItFromSaveToSave) {
    run(Milliseconds(400), kMany, 0);
    now_ += std::chrono::seconds(20);
    EXPECT_EQ(run(Milliseconds(20), 1, 0), EncodeEffort::kLeast);
}

TEST_F(EncodingPaceTest, TriesAgainMoreAndMoreRarely) {
    run(Milliseconds(400), kMany, 0);
    now_ += EncodingPace::kFirstHurry;
    EXPECT_EQ(run(Milliseconds(200), kMany, 0), EncodeEffort::kNormal);
    EXPECT_EQ(run(Milliseconds(200), kMany, 0), EncodeEffort::kLeast);
    now_ += EncodingPace::kFirstHurry;
    EXPECT_EQ(run(Milliseconds(20), kMany, 0), EncodeEffort::kLeast);
    now_ += EncodingPace::kFirstHurry;
    EXPECT_EQ(run(Milliseconds(20), kMany, 0), EncodeEffort::kNormal);
}

TEST_F(EncodingPaceTest, ForgetsWhatIsLongPast) {
    run(Milliseconds(400), kMany, 0);
    now_ += EncodingPace::kFirstHurry;
    run(Milliseconds(400), kMany, 0);
    now_ += 2 * EncodingPace::kFirstHurry;
    run(EncodingPace::kForgetAfter + Milliseconds(1000), kMany, kEnough);
    run(Milliseconds(400), kMany, 0);
    EXPECT_TRUE(pace_.hurried());
    now_ += EncodingPace::kFirstHurry;
    EXPECT_EQ(run(Milliseconds(20), kMany, 0), EncodeEffort::kNormal);
}

}  // namespace
}  // namespace ckptfs
