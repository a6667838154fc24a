// SPDX-License-Identifier: Apache-2.0
#include "aws/url.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

TEST(Uri, KeysKeepTheirSlashesAndAreEncodedOnce) {
    EXPECT_EQ(uri_encode_key("run 1/ep=3/model+ä.pt"), "run%201/ep%3D3/model%2B%C3%A4.pt");
    EXPECT_EQ(uri_encode_key("a%20b"), "a%2520b");
    EXPECT_EQ(uri_encode_key("-._~"), "-._~");
    EXPECT_EQ(uri_encode_key("a//b/../c"), "a//b/../c");
    EXPECT_EQ(uri_encode("a/b"), "a%2Fb");
}

TEST(Uri, DecodesWhatStoresSend) {
    EXPECT_EQ(uri_decode("a%2Fb+c%c3%A4"), "a/b c\xc3\xa4");
    EXPECT_FALSE(uri_decode("a%2").has_value());
    EXPECT_FALSE(uri_decode("%zz").has_value());
}

TEST(Uri, EveryByteSurvives) {
    std::string all;
    for (int c = 0; c < 256; ++c) {
        all += static_cast<char>(c);
    }
    EXPECT_EQ(uri_decode(uri_encode(all)), all);
    EXPECT_EQ(uri_decode(uri_encode_key(all)), all);
}

TEST(Uri, TheQueryIsSortedAfterEncoding) {
    EXPECT_EQ(canonical_query({{"prefix", "a b/"}, {"list-type", "2"}, {"delimiter", "/"}, {"uploads", ""}}),
              "delimiter=%2F&list-type=2&prefix=a%20b%2F&uploads=");
    EXPECT_EQ(canonical_query({}), "");
}

}  // namespace
}  // namespace ckptfs
