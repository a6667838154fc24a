// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace ckptfs {
namespace {

TEST(EtagAliases, TranslateTheLastVersionOfAKey) {
    EtagAliases aliases;
    aliases.note("k", "here1", "there1", {});
    EXPECT_EQ(aliases.here("k", "there1"), "here1");
    EXPECT_EQ(aliases.there("k", "here1"), "there1");
    EXPECT_EQ(aliases.there("other", "here1"), "here1");
    aliases.note("k", "here2", "there2", {});
    EXPECT_EQ(aliases.there("k", "here2"), "there2");
    EXPECT_EQ(aliases.here("k", "there1"), "there1");
    EXPECT_EQ(aliases.size(), 1U);
}

TEST(EtagAliases, KnowWhenAVersionWasAcknowledged) {
    EtagAliases aliases;
    const WallTime acknowledged{std::chrono::milliseconds(1'700'000'000'999)};
    const WallTime sent = acknowledged + std::chrono::seconds(5);
    aliases.note("k", "here", "there", {acknowledged, sent});
    aliases.note("copy", "same", "same", {acknowledged, sent});
    aliases.note("left", "here", "there", {{}, sent});
    const auto known = [&aliases, sent](const std::string& key, const std::string& etag, int seconds = 0) {
        ObjectInfo object;
        object.key = key;
        object.etag = etag;
        object.last_modified = sent + std::chrono::seconds(seconds);
        return aliases.acknowledged_at(object);
    };
    EXPECT_EQ(known("k", "there"), acknowledged);
    EXPECT_EQ(known("k", "here"), acknowledged);
    EXPECT_EQ(known("copy", "same"), acknowledged);
    EXPECT_EQ(known("k", "there", 60), std::nullopt) << "it was written again";
    EXPECT_EQ(known("left", "there"), std::nullopt);
    EXPECT_EQ(known("k", "of another mount"), std::nullopt);
    EXPECT_EQ(known("other", "there"), std::nullopt);
}

TEST(EtagAliases, OfAVersionThatNeedsNoneThatOfAnEarlierOneIsForgotten) {
    EtagAliases aliases;
    aliases.note("k", "here", "same", {});
    aliases.note("k", "same", "same", {});
    EXPECT_EQ(aliases.here("k", "same"), "same");
}

TEST(EtagAliases, TheOldestGoFirstAndWhatWasNotedAgainIsNew) {
    EtagAliases aliases;
    aliases.note("hot", "here", "there", {});
    for (std::size_t number = 0; number < EtagAliases::kMost - 1; ++number) {
        aliases.note(std::to_string(number), "here", "there", {});
    }
    aliases.note("hot", "here again", "there again", {});
    aliases.note("one more", "here", "there", {});
    EXPECT_EQ(aliases.size(), EtagAliases::kMost);
    EXPECT_EQ(aliases.there("hot", "here again"), "there again");
    EXPECT_EQ(aliases.there("0", "here"), "here");
    EXPECT_EQ(aliases.there("1", "here"), "there");
    for (int number = 0; number < 1'000'000; ++number) {
        aliases.note("hot", "here", "there", {});
    }
    EXPECT_LE(aliases.size(), EtagAliases::kMost);
    EXPECT_EQ(aliases.there("hot", "here"), "there");
}

}  // namespace
}  // namespace ckptfs
