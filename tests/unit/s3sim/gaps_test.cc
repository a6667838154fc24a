// SPDX-License-Identifier: Apache-2.0
#include "s3sim/gaps.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

std::vector<std::string> left(const Gaps& gaps, Operation operation) {
    S3Request request;
    request.operation = operation;
    request.http.headers = {{"host", "s3"},
                            {"if-match", "\"etag\""},
                            {"if-none-match", "*"},
                            {"x-amz-copy-source", "/bucket/key"},
                            {"x-amz-copy-source-if-match", "\"etag\""},
                            {"x-amz-meta-name", "value"}};
    EXPECT_TRUE(apply_gaps(gaps, request));
    std::vector<std::string> names;
    for (const NameValue& header : request.http.headers) {
        names.push_back(header.first);
    }
    return names;
}

using Names = std::vector<std::string>;

TEST(Gaps, AStoreWithoutAnyHeedsEveryHeader) {
    EXPECT_EQ(left({}, Operation::kPutObject).size(), 6U);
}

TEST(Gaps, TheSourceOfACopiedPartIsDecodedOnceMore) {
    for (const Operation operation : {Operation::kUploadPartCopy, Operation::kCopyObject}) {
        S3Request request;
        request.operation = operation;
        request.http.headers = {{"x-amz-copy-source", "/bucket/p%2520q"}};
        EXPECT_TRUE(apply_gaps({"part-copy-sources"}, request));
        const auto source = read_copy_source(request.http);
        ASSERT_TRUE(source);
        EXPECT_EQ(source->key, operation == Operation::kUploadPartCopy ? "p q" : "p%20q");
    }
}

TEST(Gaps, TakeOnlyTheirHeadersAway) {
    EXPECT_EQ(left({"metadata"}, Operation::kPutObject),
              (Names{"host", "if-match", "if-none-match", "x-amz-copy-source", "x-amz-copy-source-if-match"}));
    EXPECT_EQ(left({"write-conditions"}, Operation::kPutObject),
              (Names{"host", "x-amz-copy-source", "x-amz-copy-source-if-match", "x-amz-meta-name"}));
    EXPECT_EQ(left({"copy-conditions"}, Operation::kCopyObject),
              (Names{"host", "if-match", "if-none-match", "x-amz-copy-source", "x-amz-meta-name"}));
}

TEST(Gaps, ConditionsOfReadsAndWritesAreDifferentOnes) {
    EXPECT_EQ(left({"write-conditions"}, Operation::kGetObject).size(), 6U);
    EXPECT_EQ(left({"read-conditions"}, Operation::kHeadObject).size(), 4U);
    EXPECT_EQ(left({"read-conditions"}, Operation::kCompleteMultipartUpload).size(), 6U);
}

TEST(Gaps, ConditionsOfDeletesAreThoseOfWritesOrTheirOwn) {
    EXPECT_EQ(left({"write-conditions"}, Operation::kDeleteObject).size(), 4U);
    EXPECT_EQ(left({"delete-conditions"}, Operation::kDeleteObject).size(), 4U);
    EXPECT_EQ(left({"delete-conditions"}, Operation::kPutObject).size(), 6U);
    EXPECT_TRUE(ignores_delete_conditions({"delete-conditions"}));
    EXPECT_TRUE(ignores_delete_conditions({"write-conditions"}));
    EXPECT_FALSE(ignores_delete_conditions({"read-conditions", "copy-conditions"}));
}

TEST(Gaps, DeletesWantMd5) {
    S3Request request;
    request.operation = Operation::kDeleteObjects;
    request.http.headers = {{"x-amz-checksum-crc32c", "AAAAAA=="}};
    EXPECT_TRUE(apply_gaps({}, request));
    const auto refused = apply_gaps({"delete-checksums"}, request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, "MissingContentMD5");
    request.http.headers.emplace_back("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==");
    EXPECT_TRUE(apply_gaps({"delete-checksums"}, request));
}

TEST(Gaps, ChecksumHeadersAreRefused) {
    S3Request request;
    request.http.headers = {{"host", "s3"}};
    EXPECT_TRUE(apply_gaps({"checksums"}, request));
    request.http.headers.emplace_back("x-amz-checksum-crc32c", "AAAAAA==");
    EXPECT_TRUE(apply_gaps({"metadata"}, request));
    const auto refused = apply_gaps({"checksums"}, request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, "NotImplemented");
}

}  // namespace
}  // namespace ckptfs::s3sim
