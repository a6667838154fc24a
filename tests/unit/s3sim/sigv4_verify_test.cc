// SPDX-License-Identifier: Apache-2.0
#include "s3sim/sigv4_verify.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

// Amazon S3 API Reference, "Signature Calculations for the Authorization Header", the worked examples.
constexpr const char* kEmptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

SigningKeys example_keys() {
    SigningKeys keys;
    keys.access_key = "AKIAIOSFODNN7EXAMPLE";
    keys.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    return keys;
}

std::string authorization(const std::string& signed_headers, const std::string& signature) {
    return "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=" +
           signed_headers + ",Signature=" + signature;
}

HttpRequest get_object_example() {
    HttpRequest request;
    request.method = "GET";
    request.path = "/test.txt";
    request.headers = {
        {"host", "examplebucket.s3.amazonaws.com"},
        {"range", "bytes=0-9"},
        {"x-amz-content-sha256", kEmptyHash},
        {"x-amz-date", "20130524T000000Z"},
        {"authorization", authorization("host;range;x-amz-content-sha256;x-amz-date",
                                        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")}};
    return request;
}

std::string code_of(const HttpRequest& request, SystemTime now, const SigningKeys& keys = example_keys()) {
    const auto verified = SignatureVerifier(keys).verify(request, now);
    return verified ? "" : verified.error().code;
}

class SignatureVerifierTest : public ::testing::Test {
protected:
    const SystemTime now_ = *parse_amz_date("20130524T000500Z");
};

TEST_F(SignatureVerifierTest, SessionsExpire) {
    SignatureVerifier verifier({"base", "secret", std::nullopt, false});
    const auto code = [&] { return verifier.verify(get_object_example(), now_).error().code; };
    EXPECT_EQ(code(), "InvalidAccessKeyId");
    const SigningKeys keys = example_keys();
    verifier.add({keys.access_key, keys.secret_key, "token", now_ + std::chrono::seconds(1)});
    // The request has no token.
    EXPECT_EQ(code(), "InvalidToken");
    verifier.add({keys.access_key, keys.secret_key, "token", now_});
    EXPECT_EQ(code(), "ExpiredToken");
}

TEST_F(SignatureVerifierTest, AcceptsThePublishedExamples) {
    const auto region = SignatureVerifier(example_keys()).verify(get_object_example(), now_);
    ASSERT_TRUE(region) << region.error().code;
    EXPECT_EQ(*region, "us-east-1");

    HttpRequest put;
    put.method = "PUT";
    put.path = "/test%24file.text";
    put.headers = {
        {"host", "examplebucket.s3.amazonaws.com"},
        {"date", "Fri, 24 May 2013 00:00:00 GMT"},
        {"x-amz-date", "20130524T000000Z"},
        {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
        {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
        {"authorization", authorization("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                                        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")}};
    EXPECT_EQ(code_of(put, now_), "");

    HttpRequest list;
    list.method = "GET";
    list.path = "/";
    list.query = "prefix=J&max-keys=2";
    list.headers = {
        {"host", "examplebucket.s3.amazonaws.com"},
        {"x-amz-date", "20130524T000000Z"},
        {"x-amz-content-sha256", kEmptyHash},
        {"authorization", authorization("host;x-amz-content-sha256;x-amz-date",
                                        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")}};
    EXPECT_EQ(code_of(list, now_), "");
}

TEST_F(SignatureVerifierTest, AcceptsThePublishedPresignedExample) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/test.txt";
    request.query =
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
        "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    request.headers = {{"host", "examplebucket.s3.amazonaws.com"}};
    EXPECT_EQ(code_of(request, now_), "");
    EXPECT_EQ(code_of(request, now_ + std::chrono::hours(25)), "AccessDenied");
}

TEST_F(SignatureVerifierTest, RefusesWhatWasChanged) {
    HttpRequest request = get_object_example();
    request.path = "/test.txU";
    EXPECT_EQ(code_of(request, now_), "SignatureDoesNotMatch");
    request = get_object_example();
    request.headers[1].second = "bytes=0-8";
    EXPECT_EQ(code_of(request, now_), "SignatureDoesNotMatch");
    request = get_object_example();
    request.query = "x=1";
    EXPECT_EQ(code_of(request, now_), "SignatureDoesNotMatch");
}

TEST_F(SignatureVerifierTest, RefusesUnsignedAmzHeaders) {
    HttpRequest request = get_object_example();
    request.headers.emplace_back("x-amz-meta-more", "1");
    EXPECT_EQ(code_of(request, now_), "AccessDenied");
}

TEST_F(SignatureVerifierTest, RefusesWrongKeysTimesAndTokens) {
    SigningKeys keys = example_keys();
    keys.access_key = "OTHER";
    EXPECT_EQ(code_of(get_object_example(), now_, keys), "InvalidAccessKeyId");
    keys = example_keys();
    keys.secret_key = "other";
    EXPECT_EQ(code_of(get_object_example(), now_, keys), "SignatureDoesNotMatch");
    keys = example_keys();
    keys.session_token = "token";
    EXPECT_EQ(code_of(get_object_example(), now_, keys), "InvalidToken");
    EXPECT_EQ(code_of(get_object_example(), now_ + std::chrono::minutes(11)), "RequestTimeTooSkewed");
    EXPECT_EQ(code_of(get_object_example(), now_ - std::chrono::minutes(21)), "RequestTimeTooSkewed");
}

TEST_F(SignatureVerifierTest, AnonymousOnlyWhereAllowed) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/";
    EXPECT_EQ(code_of(request, now_), "AccessDenied");
    SigningKeys keys = example_keys();
    keys.allow_anonymous = true;
    EXPECT_EQ(code_of(request, now_, keys), "");
}

TEST_F(SignatureVerifierTest, RefusesMalformedAuthorization) {
    for (const char* wrong : {"AWS4-HMAC-SHA256 nonsense",
                              "AWS4-HMAC-SHA256 Credential=a/b,SignedHeaders=h,Signature=s", "Basic abc", ""}) {
        HttpRequest request = get_object_example();
        request.headers.back().second = wrong;
        EXPECT_NE(code_of(request, now_), "") << wrong;
    }
}

}  // namespace
}  // namespace ckptfs::s3sim
