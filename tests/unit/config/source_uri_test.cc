// SPDX-License-Identifier: Apache-2.0
#include "config/source_uri.h"

#include <gtest/gtest.h>

#include <string>

namespace ckptfs {
namespace {

TEST(SourceUri, BucketAndPrefix) {
    const auto access_point = parse_source("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/train/run/7");
    EXPECT_EQ(access_point->bucket, "arn:aws:s3:eu-west-1:123456789012:accesspoint/train");
    EXPECT_EQ(access_point->prefix, "run/7/");
    EXPECT_EQ(parse_source("s3://bucket")->prefix, "");
    EXPECT_EQ(parse_source("s3://bucket/")->prefix, "");
    EXPECT_EQ(parse_source("s3://bucket/a/b")->prefix, "a/b/");
    EXPECT_EQ(parse_source("s3://bucket/a/b/")->prefix, "a/b/");
    EXPECT_EQ(parse_source("s3://my.bucket-1/x")->bucket, "my.bucket-1");
    for (const char* wrong : {"bucket", "http://bucket", "s3://", "s3:///prefix", "s3://b ucket", "s3://bucket//a",
                              "s3://bucket/a/../b", "s3://bucket/./b"}) {
        EXPECT_FALSE(parse_source(wrong)) << wrong;
    }
}

// A tool takes any key that S3 takes.
TEST(SourceUri, ObjectsNeedNoPath) {
    for (const char* key : {"a//b", "/a", "../a", "a/./b", "a/"}) {
        const auto uri = parse_object_uri(std::string("s3://bucket/") + key);
        ASSERT_TRUE(uri) << key;
        EXPECT_EQ(uri->key, key);
    }
    EXPECT_FALSE(parse_object_uri("s3://bucket/" + std::string(1025, 'a')));
    EXPECT_FALSE(parse_object_uri("s3:///key"));
    EXPECT_EQ(parse_object_uri("s3://bucket").value().key, "");
}

}  // namespace
}  // namespace ckptfs
