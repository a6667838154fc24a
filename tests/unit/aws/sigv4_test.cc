// SPDX-License-Identifier: Apache-2.0
// The examples of "Examples: Signature Calculations in AWS Signature Version 4" (Amazon S3 API Reference).
#include "aws/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "aws/url.h"
#include "base/digest.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;

const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), Secret(), {}};
const WallTime kExampleTime = std::chrono::sys_days(std::chrono::year(2013) / 5 / 24);
const SigningScope kScope{kExampleTime, "us-east-1"};
constexpr const char* kHost = "examplebucket.s3.amazonaws.com";

std::string signature(const UnsignedRequest& request) {
    const std::string value = authorization(request, kScope, kExample);
    return value.substr(value.rfind('=') + 1);
}

UnsignedRequest example(std::string_view method, std::string_view path, std::string_view query,
                        std::string_view hash = kEmptyPayloadHash) {
    return {method,
            path,
            query,
            {{"host", kHost}, {"x-amz-date", "20130524T000000Z"}, {"x-amz-content-sha256", std::string(hash)}},
            hash};
}

TEST(SigV4, GetObject) {
    UnsignedRequest request = example("GET", "/test.txt", "");
    request.headers.emplace_back("range", "bytes=0-9");
    EXPECT_EQ(canonical_request(request),
              "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n"
              "x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
              "x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n"
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(string_to_sign(canonical_request(request), kScope),
              "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
              "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
    EXPECT_EQ(authorization(request, kScope, kExample),
              "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
              "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
              "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, PutObject) {
    const std::string hash = hex(sha256(as_bytes(std::string_view("Welcome to Amazon S3."))));
    UnsignedRequest request = example("PUT", "/test%24file.text", "", hash);
    request.headers.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
    request.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
    EXPECT_EQ(signature(request), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, GetBucketLifecycle) {
    EXPECT_EQ(signature(example("GET", "/", canonical_query({{"lifecycle", ""}}))),
              "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(SigV4, ListObjects) {
    EXPECT_EQ(signature(example("GET", "/", canonical_query({{"prefix", "J"}, {"max-keys", "2"}}))),
              "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4, BlanksInHeaderValuesAreFolded) {
    UnsignedRequest request = example("GET", "/", "");
    request.headers.emplace_back("x-amz-meta-note", "  a   b\t c  ");
    EXPECT_THAT(canonical_request(request), HasSubstr("\nx-amz-meta-note:a b c\n"));
}

}  // namespace
}  // namespace ckptfs
