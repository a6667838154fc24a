// SPDX-License-Identifier: Apache-2.0
#include "s3/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aws/sigv4.h"
#include "s3/signed_request.h"

namespace ckptfs::s3 {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr const char* kEncryption = "x-amz-server-side-encryption";
constexpr const char* kKmsKey = "x-amz-server-side-encryption-aws-kms-key-id";

RequestDefaults with_key() {
    RequestDefaults defaults;
    defaults.encryption = "aws:kms";
    defaults.kms_key_id = "alias/mine";
    return defaults;
}

TEST(Requests, NewObjectsAreEncryptedAsAsked) {
    for (const S3Request& request :
         {put_request(with_key(), {}), copy_request(with_key(), {}), create_upload_request(with_key(), {})}) {
        EXPECT_THAT(request.headers, Contains(Pair(kEncryption, "aws:kms"))) << request.operation;
        EXPECT_THAT(request.headers, Contains(Pair(kKmsKey, "alias/mine"))) << request.operation;
    }
    RequestDefaults without_key;
    without_key.encryption = "AES256";
    EXPECT_THAT(put_request(without_key, {}).headers, Contains(Pair(kEncryption, "AES256")));
    EXPECT_THAT(put_request(without_key, {}).headers, Not(Contains(Key(kKmsKey))));
    EXPECT_THAT(put_request({}, {}).headers, Not(Contains(Key(kEncryption))));
    // The upload knows it; its parts must not say it again.
    EXPECT_THAT(upload_part_request(with_key(), {}).headers, Not(Contains(Key(kEncryption))));
}

TEST(Requests, ACopyKeepsTheEncryptionOfItsSourceUnlessAnotherIsAskedFor) {
    CreateUploadRequest create;
    create.other_headers = {{kEncryption, "AES256"}, {"cache-control", "no-store"}};
    EXPECT_THAT(create_upload_request({}, create).headers, Contains(Pair(kEncryption, "AES256")));
    const HttpHeaders changed = create_upload_request(with_key(), create).headers;
    EXPECT_THAT(changed, Contains(Pair(kEncryption, "aws:kms")).Times(1));
    EXPECT_THAT(changed, Not(Contains(Pair(kEncryption, "AES256"))));
    EXPECT_THAT(changed, Contains(Pair("cache-control", "no-store")));
}

TEST(Requests, CopiesNameTheirSourceByItsArnBehindAnAccessPoint) {
    RequestDefaults defaults;
    defaults.bucket = "bucket";
    CopyRequest copy;
    copy.source_key = "a b/c";
    EXPECT_THAT(copy_request(defaults, copy).headers, Contains(Pair("x-amz-copy-source", "/bucket/a%20b/c")));
    defaults.bucket = "arn:aws:s3:eu-west-1:123456789012:accesspoint/train";
    EXPECT_THAT(copy_request(defaults, copy).headers,
                Contains(Pair("x-amz-copy-source",
                              "arn%3Aaws%3As3%3Aeu-west-1%3A123456789012%3Aaccesspoint/train/object/a%20b/c")));
}

TEST(Requests, WhoeverPaysSaysSoWithEveryRequest) {
    Endpoint endpoint;
    endpoint.requester_pays = true;
    const auto keys = std::make_shared<const Credentials>(Credentials{"id", Secret("s"), Secret(), std::nullopt});
    const HttpRequest paid = signed_request(head_request("key"), {}, endpoint, keys, {}, kUnsignedPayload);
    EXPECT_THAT(paid.headers, Contains(Pair("x-amz-request-payer", "requester")));
    // Signed, too.
    EXPECT_THAT(paid.headers, Contains(Pair("authorization", ::testing::HasSubstr("x-amz-request-payer"))));
    endpoint.requester_pays = false;
    EXPECT_THAT(signed_request(head_request("key"), {}, endpoint, keys, {}, kUnsignedPayload).headers,
                Not(Contains(Key("x-amz-request-payer"))));
}

TEST(Requests, OnlyListsMayHaveLargeAnswers) {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    for (const S3Request& list :
         {list_request({}), list_uploads_request("", "", ""), list_parts_request({}, 0), delete_many_request({})}) {
        EXPECT_EQ(largest_answer(list), 16 * kMiB) << list.operation;
    }
    for (const S3Request& other : {put_request({}, {}), copy_request({}, {}), create_upload_request({}, {}),
                                   upload_part_request({}, {}), upload_part_copy_request({}, {}), complete_request({}),
                                   abort_request({}), delete_request({"k", ""}), get_request("k")}) {
        EXPECT_EQ(largest_answer(other), kMiB) << other.operation;
    }
    EXPECT_EQ(largest_answer(head_request("k")), 0U);
}

}  // namespace
}  // namespace ckptfs::s3
