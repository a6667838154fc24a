// SPDX-License-Identifier: Apache-2.0
#include "s3sim/object_table.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

class ObjectTableTest : public ::testing::Test {
protected:
    ObjectTableTest() { EXPECT_TRUE(table_.create_bucket("bkt", "us-east-1")); }

    Outcome<ObjectPtr> put(const std::string& key, const std::string& text, const WriteCondition& condition = {}) {
        Object object;
        object.bytes = ByteChain::from_string(text);
        return table_.put("bkt", key, std::move(object), condition);
    }
    std::string start_upload(const std::string& key) {
        Upload upload;
        upload.key = key;
        return table_.create_upload("bkt", std::move(upload)).value_or("");
    }

    ObjectTable table_{false};
};

TEST_F(ObjectTableTest, EveryVersionHasItsETag) {
    const auto first = put("k", "a");
    const auto second = put("k", "a");
    ASSERT_TRUE(first && second);
    EXPECT_EQ((*first)->etag.size(), 32U);
    EXPECT_NE((*first)->etag, (*second)->etag);
    EXPECT_EQ((*table_.find("bkt", "k"))->etag, (*second)->etag);
}

TEST_F(ObjectTableTest, ConditionsGuardWrites) {
    WriteCondition absent;
    absent.if_none_match_any = true;
    EXPECT_TRUE(put("k", "a", absent));
    EXPECT_EQ(put("k", "b", absent).error().code, "PreconditionFailed");
    WriteCondition same;
    same.if_match = (*table_.find("bkt", "k"))->etag;
    EXPECT_TRUE(put("k", "b", same));
    EXPECT_EQ(put("k", "c", same).error().code, "PreconditionFailed");
    EXPECT_EQ((*table_.find("bkt", "k"))->bytes.to_string(), "b");
}

TEST_F(ObjectTableTest, MissingThingsAreNamed) {
    EXPECT_EQ(table_.find("none", "k").error().code, "NoSuchBucket");
    EXPECT_EQ(table_.find("bkt", "k").error().code, "NoSuchKey");
    EXPECT_TRUE(table_.erase("bkt", "k", std::nullopt));
    EXPECT_EQ(table_.abort("bkt", "k", "id").error().code, "NoSuchUpload");
    EXPECT_EQ(table_.put_part("bkt", "k", "id", 1, {}).error().code, "NoSuchUpload");
}

TEST_F(ObjectTableTest, ARepeatedCompleteIsTheFirst) {
    const std::string id = start_upload("k");
    const auto etag = table_.put_part("bkt", "k", id, 1, StoredPart{ByteChain::from_string("a"), {}, {}, {}});
    ASSERT_TRUE(etag);
    CompleteRequest request;
    request.parts = {CompletedPart{1, *etag, {}}};
    const auto first = table_.complete("bkt", "k", id, request);
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_TRUE((*first)->etag.ends_with("-1"));
    const auto second = table_.complete("bkt", "k", id, request);
    ASSERT_TRUE(second);
    EXPECT_EQ((*first)->etag, (*second)->etag);
    request.parts[0].etag = "other";
    EXPECT_EQ(table_.complete("bkt", "k", id, request).error().code, "NoSuchUpload");
    EXPECT_TRUE(table_.uploads("bkt").empty());
}

TEST_F(ObjectTableTest, ARememberedCompleteKeepsNoBytes) {
    const std::string id = start_upload("k");
    const auto etag = table_.put_part("bkt", "k", id, 1, StoredPart{ByteChain::from_string("a"), {}, {}, {}});
    ASSERT_TRUE(etag);
    CompleteRequest request;
    request.parts = {CompletedPart{1, *etag, {}}};
    std::weak_ptr<const std::byte> bytes;
    {
        const auto object = table_.complete("bkt", "k", id, request);
        ASSERT_TRUE(object) << object.error().message;
        bytes = (*object)->bytes.slice(0).data;
    }
    EXPECT_FALSE(bytes.expired());
    ASSERT_TRUE(table_.erase("bkt", "k", std::nullopt));
    EXPECT_TRUE(bytes.expired());
}

TEST_F(ObjectTableTest, AFailedConditionLeavesTheUpload) {
    ASSERT_TRUE(put("k", "old"));
    const std::string id = start_upload("k");
    const auto etag = table_.put_part("bkt", "k", id, 1, StoredPart{ByteChain::from_string("a"), {}, {}, {}});
    CompleteRequest request;
    request.parts = {CompletedPart{1, *etag, {}}};
    request.condition.if_none_match_any = true;
    EXPECT_EQ(table_.complete("bkt", "k", id, request).error().code, "PreconditionFailed");
    EXPECT_EQ(table_.uploads("bkt").size(), 1U);
    EXPECT_TRUE(table_.abort("bkt", "k", id));
}

TEST_F(ObjectTableTest, AnUploadBelongsToItsKey) {
    const std::string id = start_upload("k");
    EXPECT_EQ(table_.put_part("bkt", "other", id, 1, {}).error().code, "NoSuchUpload");
}

TEST_F(ObjectTableTest, MadeUpMd5ETagsAreS3s) {
    ObjectTable table(true);
    ASSERT_TRUE(table.create_bucket("bkt", "us-east-1"));
    Object object;
    object.bytes = ByteChain::from_string("hello");
    EXPECT_EQ((*table.put("bkt", "k", std::move(object), {}))->etag, "5d41402abc4b2a76b9719d911017c592");
}

}  // namespace
}  // namespace ckptfs::s3sim
