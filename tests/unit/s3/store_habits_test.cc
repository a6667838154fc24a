// SPDX-License-Identifier: Apache-2.0
#include "s3/store_habits.h"

#include <gtest/gtest.h>

namespace ckptfs::s3 {
namespace {

constexpr const char* kKind = "if-match of PutObject";

TEST(StoreHabits, WhatIsFirstIsToldOnce) {
    StoreHabits habits;
    EXPECT_FALSE(habits.has("no UploadPartCopy"));
    EXPECT_TRUE(habits.note("no UploadPartCopy"));
    EXPECT_FALSE(habits.note("no UploadPartCopy"));
    EXPECT_TRUE(habits.has("no UploadPartCopy"));
    EXPECT_TRUE(habits.note("UploadPartCopy"));
}

TEST(StoreHabits, AConditionIsSentAsInS3UntilItWasSeenTwice) {
    for (const SentCondition sent : {SentCondition::kWithoutQuotes, SentCondition::kNotAtAll}) {
        StoreHabits habits;
        EXPECT_EQ(habits.condition(kKind), SentCondition::kAsInS3);
        EXPECT_FALSE(habits.took(kKind, sent));
        EXPECT_EQ(habits.condition(kKind), SentCondition::kAsInS3);
        EXPECT_TRUE(habits.took(kKind, sent));
        EXPECT_EQ(habits.condition(kKind), sent);
        // It is worth one line of the log.
        EXPECT_FALSE(habits.took(kKind, sent));
        EXPECT_EQ(habits.condition(kKind), sent);
        EXPECT_EQ(habits.condition("if-match of CopyObject"), SentCondition::kAsInS3);
    }
}

TEST(StoreHabits, OneThatWasTakenInBetweenIsBelieved) {
    StoreHabits habits;
    EXPECT_FALSE(habits.took(kKind, SentCondition::kNotAtAll));
    EXPECT_FALSE(habits.took(kKind, SentCondition::kAsInS3));
    EXPECT_FALSE(habits.took(kKind, SentCondition::kNotAtAll));
    EXPECT_FALSE(habits.took(kKind, SentCondition::kWithoutQuotes));
    EXPECT_EQ(habits.condition(kKind), SentCondition::kAsInS3);
    EXPECT_TRUE(habits.took(kKind, SentCondition::kWithoutQuotes));
    EXPECT_EQ(habits.condition(kKind), SentCondition::kWithoutQuotes);
}

}  // namespace
}  // namespace ckptfs::s3
