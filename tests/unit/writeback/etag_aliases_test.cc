// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

#include <gtest/gtest.h>

#include <chrono>
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

TEST(EtagAliases, ShowAVersionAsOfTheTimeWhenItWasAcknowledged) {
    EtagAliases aliases;
    const WallTime acknowledged{std::chrono::seconds(1'700'000'000)};
    const WallTime sent = acknowledged + std::chrono::seconds(5);
    aliases.note("k", "here", "there", {acknowledged + Milliseconds(999), sent});
    aliases.note("left", "here", "there", {});
    const auto shown = [&aliases, sent](const std::string& key, const std::string& etag, int seconds = 0) {
        ObjectInfo object;
        object.key = key;
        object.etag = etag;
        object.last_modified = sent + std::chrono::seconds(seconds);
        aliases.show(object);
        return object;
    };
    EXPECT_EQ(shown("k", "there").etag, "here");
    EXPECT_EQ(shown("k", "there").last_modified, acknowledged) << "to the second, as the store's times";
    EXPECT_EQ(shown("k", "there", 60).last_modified, sent + std::chrono::seconds(60)) << "it was written again";
    EXPECT_EQ(shown("left", "there").etag, "here");
    EXPECT_EQ(shown("left", "there").last_modified, sent) << "that is not known";
    EXPECT_EQ(shown("k", "of another mount").last_modified, sent);
    EXPECT_EQ(shown("other", "there").etag, "there");
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
