// SPDX-License-Identifier: Apache-2.0
// The examples of "Examples: Signature Calculations in AWS Signature Version 4" (Amazon S3 API Reference).
#include "s3/signed_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "aws/sigv4.h"

namespace ckptfs::s3 {
namespace {

using ::testing::HasSubstr;

const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), Secret(), {}};
const WallTime kExampleTime = std::chrono::sys_days(std::chrono::year(2013) / 5 / 24);

Endpoint example_endpoint() {
    return {"https", "examplebucket.s3.amazonaws.com", "", "us-east-1"};
}

TEST(SignedRequest, MatchesThePublishedExample) {
    S3Request get;
    get.method = "GET";
    get.key = "test.txt";
    const HttpRequest http =
        signed_request(get, {{"range", "bytes=0-9"}}, example_endpoint(), std::make_shared<const Credentials>(kExample),
                       kExampleTime, kEmptyPayloadHash);
    EXPECT_EQ(http.url, "https://examplebucket.s3.amazonaws.com/test.txt");
    EXPECT_THAT(http.headers.back().second,
                HasSubstr("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

TEST(SignedRequest, TheSessionTokenIsSentAndSigned) {
    Credentials session = kExample;
    session.session_token = Secret("a-token");
    S3Request get;
    get.method = "GET";
    const HttpRequest http = signed_request(get, {}, example_endpoint(), std::make_shared<const Credentials>(session),
                                            kExampleTime, kEmptyPayloadHash);
    EXPECT_THAT(http.headers,
                ::testing::Contains(std::pair<std::string, std::string>("x-amz-security-token", "a-token")));
    EXPECT_THAT(http.headers.back().second,
                HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
}

TEST(SignedRequest, WithoutCredentialsNothingIsAdded) {
    S3Request get;
    get.method = "GET";
    get.key = "k";
    EXPECT_TRUE(signed_request(get, {}, example_endpoint(), nullptr, kExampleTime, kEmptyPayloadHash).headers.empty());
}

}  // namespace
}  // namespace ckptfs::s3
