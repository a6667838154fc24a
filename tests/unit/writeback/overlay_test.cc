// SPDX-License-Identifier: Apache-2.0
#include "writeback/overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptfs {
namespace {

using Kind = UnsentChange::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OverlayTest : public ::testing::Test {
protected:
    std::shared_ptr<const HeldChange> add(Kind kind, const std::string& key) {
        auto held = std::make_shared<HeldChange>();
        held->change.number = ++last;
        held->change.kind = kind;
        held->change.object.key = key;
        held->change.object.etag = "\"" + key + "\"";
        held->change.object.metadata = {{"not", "listed"}};
        overlay.add(held);
        return held;
    }
    static ListResponse page(const std::vector<std::string>& keys, const std::vector<std::string>& prefixes = {}) {
        ListResponse response;
        for (const std::string& key : keys) {
            ObjectInfo object;
            object.key = key;
            response.objects.push_back(object);
        }
        response.common_prefixes = prefixes;
        return response;
    }
    static std::vector<std::string> keys(const ListResponse& response) {
        std::vector<std::string> all;
        for (const ObjectInfo& object : response.objects) {
            all.push_back(object.key);
        }
        return all;
    }

    Overlay overlay;
    std::uint64_t last = 0;
};

TEST_F(OverlayTest, TheLastChangeOfAKeyCounts) {
    const auto first = add(Kind::kPut, "a");
    const auto second = add(Kind::kRemove, "a");
    EXPECT_EQ(overlay.find("a"), second);
    overlay.drop(*first, nullptr);
    EXPECT_EQ(overlay.find("a"), second);
    overlay.drop(*second, first);
    EXPECT_EQ(overlay.find("a"), first);
    overlay.drop(*first, nullptr);
    EXPECT_EQ(overlay.find("a"), nullptr);
    EXPECT_TRUE(overlay.empty());
}

TEST_F(OverlayTest, GivesWhatBeginsWithAPrefix) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "a/b");
    add(Kind::kPut, "a/c");
    add(Kind::kPut, "b");
    EXPECT_EQ(overlay.below("a/").size(), 2U);
    EXPECT_EQ(overlay.below("").size(), 4U);
    EXPECT_TRUE(overlay.below("c").empty());
}

TEST_F(OverlayTest, APageHasWhatIsThereAndLacksWhatIsNot) {
    add(Kind::kPut, "b");
    add(Kind::kRemove, "c");
    ListRequest request;
    const ListResponse merged = merge_page(page({"a", "c", "d"}), request, overlay.below(""), {"", ""}, {});
    EXPECT_THAT(keys(merged), ElementsAre("a", "b", "d"));
    EXPECT_TRUE(merged.objects[1].metadata.empty());
}

TEST_F(OverlayTest, APageHasOnlyTheKeysThatItCovers) {
    add(Kind::kPut, "a");
    add(Kind::kPut, "c");
    add(Kind::kPut, "dd");
    add(Kind::kPut, "e");
    const ListResponse merged = merge_page(page({"b", "d"}), {}, overlay.below(""), {"a", "d"}, {});
    EXPECT_THAT(keys(merged), ElementsAre("b", "c", "d"));
}

TEST_F(OverlayTest, ADirectoryIsThereOnce) {
    add(Kind::kPut, "run/a/1");
    add(Kind::kPut, "run/a/2");
    add(Kind::kPut, "run/b/1");
    add(Kind::kPut, "run/c");
    ListRequest request;
    request.prefix = "run/";
    request.delimiter = "/";
    const ListResponse merged = merge_page(page({}, {"run/b/"}), request, overlay.below("run/"), {"", ""}, {});
    EXPECT_THAT(merged.common_prefixes, ElementsAre("run/a/", "run/b/"));
    EXPECT_THAT(keys(merged), ElementsAre("run/c"));
}

TEST_F(OverlayTest, ADirectoryOfWhichOnlyRemovalsAreKnownIsDoubtful) {
    add(Kind::kRemove, "a/1");
    add(Kind::kRemove, "b/1");
    add(Kind::kPut, "b/2");
    EXPECT_THAT(doubtful_prefixes(page({}, {"a/", "b/", "c/"}), overlay.below("")), ElementsAre("a/"));
    ListRequest request;
    request.delimiter = "/";
    const ListResponse merged = merge_page(page({}, {"a/", "b/"}), request, overlay.below(""), {"", ""}, {"a/"});
    EXPECT_THAT(merged.common_prefixes, ElementsAre("b/"));
    EXPECT_THAT(keys(merged), IsEmpty());
}

}  // namespace
}  // namespace ckptfs
