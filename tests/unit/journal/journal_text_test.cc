// SPDX-License-Identifier: Apache-2.0
#include "journal/journal_text.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

TEST(JournalText, ATornLineAndNonsenseArePassedOver) {
    const auto open = parse_journal("+id1 run/a.pt\n\nwhat\n+id2\n-id9\n+id3 run/c.p").uploads;
    ASSERT_EQ(open.size(), 1U);
    EXPECT_EQ(open[0].key, "run/a.pt");
    EXPECT_TRUE(parse_journal("").uploads.empty());
    EXPECT_EQ(parse_journal("+id %4\n").uploads.front().key, "%4");
}

}  // namespace
}  // namespace ckptfs
