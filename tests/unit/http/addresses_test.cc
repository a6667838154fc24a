// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "http/transfer.h"

namespace ckptfs {
namespace {

TEST(UrlAuthority, IsWhatStandsBetweenSchemeAndPath) {
    EXPECT_EQ(url_authority("https://bucket.s3.amazonaws.com/a@b:c"), "bucket.s3.amazonaws.com");
    EXPECT_EQ(url_authority("http://user:word@host:9000?x"), "host:9000");
    EXPECT_EQ(url_authority("http://[::1]:80/"), "[::1]:80");
}

TEST(IsLoopback, KnowsTheLocalNames) {
    EXPECT_TRUE(is_loopback("localhost:9000"));
    EXPECT_TRUE(is_loopback("bucket.localhost"));
    EXPECT_TRUE(is_loopback("127.0.0.1:1"));
    EXPECT_TRUE(is_loopback("[::1]:80"));
    EXPECT_FALSE(is_loopback("localhost.example.com"));
    EXPECT_FALSE(is_loopback("10.0.0.1"));
}

}  // namespace
}  // namespace ckptfs
