// SPDX-License-Identifier: Apache-2.0
#include "s3sim/uri.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

TEST(Uri, Decodes) {
    EXPECT_EQ(percent_decode("/a%20b+c%2B%C3%A9"), "/a b c+\xC3\xA9");
    for (const char* wrong : {"%", "%4", "%zz", "abc%f"}) {
        EXPECT_FALSE(percent_decode(wrong)) << wrong;
    }
}

TEST(Uri, EncodesAllButTheUnreserved) {
    EXPECT_EQ(percent_encode("/a b~-._*", true), "/a%20b~-._%2A");
    EXPECT_EQ(percent_encode("/\xC3\xA9", false), "%2F%C3%A9");
}

TEST(Uri, EncodesListedKeysLikeS3) {
    EXPECT_EQ(encode_listed_key("a b+c/~*\n"), "a+b%2Bc/%7E*%0A");
}

TEST(Uri, ReadsQueries) {
    const auto query = parse_query("uploads&prefix=a%2Fb&x=&=y&&z=1=2");
    ASSERT_TRUE(query);
    const std::vector<NameValue> expected = {{"uploads", ""}, {"prefix", "a/b"}, {"x", ""}, {"", "y"}, {"z", "1=2"}};
    EXPECT_EQ(*query, expected);
    EXPECT_FALSE(parse_query("a=%g1"));
}

}  // namespace
}  // namespace ckptfs::s3sim
