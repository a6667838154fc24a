// SPDX-License-Identifier: Apache-2.0
// Growing files that are published while memory is short.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unit/staged/growing_file_fixture.h"

namespace ckptfs::testing {
namespace {

class GrowingShortageTest : public GrowingFileTest {
public:
    GrowingShortageTest() : GrowingFileTest(64 * kMiB) {}
};
INSTANTIATE_TEST_SUITE_P(Codecs, GrowingShortageTest, ::testing::Values("none", "auto"));

// As many logs as there are buffers for file data held one each while they waited for another.
TEST_P(GrowingShortageTest, WhatIsFetchedDoesNotWaitForMemoryThatItsLogHolds) {
    std::string text = bytes(1000);
    const auto log = grow(save(text));
    add(*log, text, "more");
    ASSERT_TRUE(all_buffers_returned());
    std::vector<Buffer> others;
    while (std::optional<Buffer> buffer = pool->try_take(MemoryUse::kWrite)) {
        others.push_back(std::move(*buffer));
    }
    ASSERT_FALSE(others.empty());
    // The only one for what is fetched and for what was written.
    others.pop_back();
    const auto published = publish(*log);
    EXPECT_TRUE(published) << published.error().message;
    others.clear();
    EXPECT_TRUE(eventually([&] { return saved() == text; }));
    EXPECT_TRUE(all_buffers_returned());
}

}  // namespace
}  // namespace ckptfs::testing
