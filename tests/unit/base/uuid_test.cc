// SPDX-License-Identifier: Apache-2.0
#include "base/uuid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ckptfs {
namespace {

TEST(RandomUuid, HasTheFormOfVersion4) {
    for (int round = 0; round < 100; ++round) {
        EXPECT_THAT(random_uuid(),
                    ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    }
}

TEST(RandomUuid, IsNeverTheSame) {
    std::set<std::string> seen;
    for (int round = 0; round < 1'000; ++round) {
        EXPECT_TRUE(seen.insert(random_uuid()).second);
    }
}

TEST(IsUuid, TellsOneFromWhatOnlyLooksLikeIt) {
    const std::string uuid = random_uuid();
    EXPECT_TRUE(is_uuid(uuid));
    for (const std::string& other : {std::string(), uuid.substr(1), uuid + "0", uuid.substr(1) + "g",
                                     uuid.substr(1) + "A", std::string(kUuidSize, '0'), std::string(kUuidSize, '-')}) {
        EXPECT_FALSE(is_uuid(other)) << other;
    }
}

}  // namespace
}  // namespace ckptfs
