// SPDX-License-Identifier: Apache-2.0
#include "s3sim/complete_upload.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

class CompleteUploadTest : public ::testing::Test {
protected:
    void add_part(int number, const std::string& bytes) {
        const std::string etag = "etag" + std::to_string(number);
        StoredPart part{ByteChain::from_string(bytes), etag, {}, std::nullopt};
        CompletedPart named{number, etag, {}};
        if (upload_.checksum_kind) {
            const std::string value = to_base64(digest_of(*upload_.checksum_kind, bytes));
            part.checksum = Checksum{*upload_.checksum_kind, value, false};
            named.checksums.emplace_back(*upload_.checksum_kind, value);
        }
        upload_.parts[number] = std::move(part);
        request_.parts.push_back(std::move(named));
    }
    std::string code() const {
        const auto object = assemble_object(upload_, request_);
        return object ? "" : object.error().code;
    }

    const std::string large_ = std::string(kSmallestPart, 'x');
    Upload upload_;
    CompleteRequest request_;
};

TEST_F(CompleteUploadTest, JoinsPartsInOrder) {
    add_part(1, large_);
    add_part(7, "end");
    const auto object = assemble_object(upload_, request_);
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(object->bytes.to_string(), large_ + "end");
    ASSERT_EQ(object->parts.size(), 2U);
    EXPECT_EQ(object->parts[1].number, 7);
}

TEST_F(CompleteUploadTest, RefusesSmallPartsExceptTheLast) {
    add_part(1, large_.substr(1));
    EXPECT_EQ(code(), "");
    add_part(2, "end");
    EXPECT_EQ(code(), "EntityTooSmall");
}

TEST_F(CompleteUploadTest, RefusesUnequalPartsWhereOnlyEqualOnesAreTaken) {
    request_.rules.equal_only = true;
    add_part(1, large_);
    add_part(2, large_);
    add_part(3, "end");
    EXPECT_EQ(code(), "");
    add_part(4, "end");
    EXPECT_EQ(code(), "InvalidPart");
    request_.rules.equal_only = false;
    EXPECT_EQ(code(), "EntityTooSmall");
}

TEST_F(CompleteUploadTest, RefusesToLeaveAPartOutWhereAllAreToBeNamed) {
    add_part(1, large_);
    add_part(7, "end");
    request_.rules.named_only = true;
    EXPECT_EQ(code(), "");
    request_.parts.pop_back();
    EXPECT_EQ(code(), "InvalidPart");
    request_.rules.named_only = false;
    EXPECT_EQ(code(), "");
}

TEST_F(CompleteUploadTest, RefusesWrongOrder) {
    add_part(2, large_);
    add_part(1, large_);
    EXPECT_EQ(code(), "InvalidPartOrder");
    request_.parts[1] = request_.parts[0];
    EXPECT_EQ(code(), "InvalidPartOrder");
}

TEST_F(CompleteUploadTest, RefusesUnknownPartsAndETags) {
    add_part(1, "a");
    request_.parts[0].etag = "other";
    EXPECT_EQ(code(), "InvalidPart");
    request_.parts[0].number = 2;
    EXPECT_EQ(code(), "InvalidPart");
}

TEST_F(CompleteUploadTest, LimitsPartNumbers) {
    add_part(10'001, "a");
    EXPECT_EQ(code(), "InvalidArgument");
}

TEST_F(CompleteUploadTest, CompositeChecksumsNeedThatOfEveryPart) {
    upload_.checksum_kind = DigestKind::kCrc32c;
    add_part(1, large_);
    add_part(2, "end");
    const auto object = assemble_object(upload_, request_);
    ASSERT_TRUE(object);
    EXPECT_EQ(object->checksum->value, composite_checksum(DigestKind::kCrc32c, {upload_.parts[1].checksum->value,
                                                                                upload_.parts[2].checksum->value}));
    EXPECT_TRUE(object->checksum->composite);
    request_.parts[0].checksums[0].second = "AAAAAA==";
    EXPECT_EQ(code(), "InvalidPart");
    request_.parts[0].checksums.clear();
    EXPECT_EQ(code(), "InvalidRequest");
}

TEST_F(CompleteUploadTest, FullObjectChecksumsAreJoined) {
    upload_.checksum_kind = DigestKind::kCrc32c;
    upload_.full_object_checksum = true;
    add_part(1, large_);
    add_part(2, "end");
    const std::string value = to_base64(digest_of(DigestKind::kCrc32c, large_ + "end"));
    request_.checksum = Checksum{DigestKind::kCrc32c, value, false};
    const auto object = assemble_object(upload_, request_);
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(object->checksum->value, value);
    request_.checksum->value = "AAAAAA==";
    EXPECT_EQ(code(), "BadDigest");
}

TEST_F(CompleteUploadTest, ChecksTheSizeThatTheClientExpects) {
    add_part(1, "abc");
    request_.size = 3;
    EXPECT_EQ(code(), "");
    request_.size = 4;
    EXPECT_EQ(code(), "InvalidRequest");
}

}  // namespace
}  // namespace ckptfs::s3sim
