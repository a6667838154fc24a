// SPDX-License-Identifier: Apache-2.0
// What ckptfs needs of a store for whole objects and listings.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "servers/server_under_test.h"

namespace ckptfs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Objects = ServerTest;
using Listing = ServerTest;

TEST_F(Objects, APutIsReadBack) {
    const std::string bytes = sample_bytes(1'000'000);
    const auto written = put("file", bytes);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_FALSE(written->etag.empty());
    EXPECT_EQ(content("file"), bytes);
}

TEST_F(Objects, HeadTellsSizeETagAndTime) {
    const auto written = put("file", "hello");
    ASSERT_TRUE(written.has_value()) << written.error().message;
    const auto object = store_->head(key("file"));
    ASSERT_TRUE(object.has_value()) << object.error().message;
    EXPECT_EQ(object->size, 5U);
    EXPECT_EQ(object->etag, written->etag);
    EXPECT_LT(std::chrono::abs(object->last_modified - clock_.wall_now()), std::chrono::minutes(5));
}

TEST_F(Objects, MetadataAndTypesAreKept) {
    PutRequest request;
    request.key = key("file");
    request.body = Payload::from_string("hello");
    request.metadata = {{kWriteIdMetadata, "0123"}, {"other", "some words"}};
    request.content_type = "application/x-checkpoint";
    request.content_encoding = "zstd";
    ASSERT_TRUE(store_->put(std::move(request)).has_value());
    const auto object = store_->head(key("file"));
    ASSERT_TRUE(object.has_value()) << object.error().message;
    EXPECT_EQ(object->metadata.at(kWriteIdMetadata), "0123");
    EXPECT_EQ(object->metadata.at("other"), "some words");
    EXPECT_EQ(object->content_type, "application/x-checkpoint");
    EXPECT_EQ(object->content_encoding, "zstd");
}

TEST_F(Objects, AnEmptyObject) {
    ASSERT_TRUE(put("empty", "").has_value());
    EXPECT_EQ(errno_of(store_->head(key("empty"))), 0);
    EXPECT_EQ(described("empty").size, 0U);
    EXPECT_EQ(content("empty"), "");
    GetRequest tail;
    tail.key = key("empty");
    tail.range = ByteRange{0, 65536, true};
    GetResponse response;
    const auto bytes = read(std::move(tail), &response);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    EXPECT_EQ(*bytes, "");
    EXPECT_EQ(response.object.size, 0U);
}

TEST_F(Objects, Ranges) {
    const std::string bytes = sample_bytes(10'000);
    ASSERT_TRUE(put("file", bytes).has_value());
    struct Case {
        ByteRange range;
        std::size_t offset;
        std::size_t length;
    };
    for (const Case& expected :
         {Case{{0, 1, false}, 0, 1}, Case{{100, 900, false}, 100, 900}, Case{{9'000, 5'000, false}, 9'000, 1'000},
          Case{{0, 100, true}, 9'900, 100}, Case{{0, 50'000, true}, 0, 10'000}}) {
        GetRequest request;
        request.key = key("file");
        request.range = expected.range;
        GetResponse response;
        const auto part = read(std::move(request), &response);
        ASSERT_TRUE(part.has_value()) << part.error().message;
        EXPECT_EQ(*part, bytes.substr(expected.offset, expected.length));
        EXPECT_EQ(response.offset, expected.offset);
        EXPECT_EQ(response.object.size, 10'000U);
    }
}

TEST_F(Objects, ARangeBeyondTheEndIsAnError) {
    ASSERT_TRUE(put("file", "hello").has_value());
    GetRequest request;
    request.key = key("file");
    request.range = ByteRange{100, 10, false};
    const auto bytes = read(std::move(request));
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().errno_value, EINVAL);
}

TEST_F(Objects, WhatIsNotThereIsENOENT) {
    EXPECT_EQ(errno_of(store_->head(key("none"))), ENOENT);
    GetRequest request;
    request.key = key("none");
    const auto bytes = read(std::move(request));
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().errno_value, ENOENT);
    EXPECT_EQ(bytes.error().s3_code, "NoSuchKey");
}

TEST_F(Objects, AReadIsPinnedToItsVersion) {
    const auto first = put("file", "first");
    ASSERT_TRUE(first.has_value());
    GetRequest request;
    request.key = key("file");
    request.if_match = first->etag;
    EXPECT_TRUE(read(request).has_value());
    ASSERT_TRUE(put("file", "second").has_value());
    const auto bytes = read(std::move(request));
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().errno_value, ESTALE);
}

struct KeyName {
    const char* what;
    const char* name;
};

class KeyNames : public ServerTest, public ::testing::WithParamInterface<KeyName> {};

TEST_P(KeyNames, AreKept) {
    const std::string name = GetParam().name;
    ASSERT_TRUE(put(name, name).has_value());
    EXPECT_EQ(content(name), name);
    EXPECT_EQ(described(name).size, name.size());
    const std::vector<ObjectInfo> before = listed();
    ASSERT_EQ(before.size(), 1U);
    EXPECT_EQ(before[0].key, key(name));
    CopyRequest copy;
    copy.source_key = key(name);
    copy.key = key("copy");
    EXPECT_TRUE(store_->copy(std::move(copy)).has_value());
    EXPECT_EQ(content("copy"), name);
    const auto failures = store_->remove_many({key(name), key("copy")});
    ASSERT_TRUE(failures.has_value()) << failures.error().message;
    EXPECT_THAT(*failures, IsEmpty());
    EXPECT_THAT(listed(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, KeyNames,
    ::testing::Values(KeyName{"Space", "with space"}, KeyName{"Plus", "plus+and=&"}, KeyName{"EmptyStep", "a//b"},
                      KeyName{"Unicode", "\u00fcn\u00ef/\u65e5\u672c"}, KeyName{"Percent", "percent%41"},
                      KeyName{"Quotes", "quote\"'<>"}, KeyName{"Dots", "dots/../x"}, KeyName{"Marks", "~tilde!*()"},
                      KeyName{"Delimiters", "semi;colon:@,?#[]"}, KeyName{"Directory", "directory/"},
                      KeyName{"CarriageReturn", "Icon\r"}, KeyName{"Newline", "a\nb"}, KeyName{"Control", "a\x01\x7f"}),
    [](const auto& key_name) { return std::string(key_name.param.what); });

TEST_F(Objects, PutIfNoneMatchRefusesToReplace) {
    PutRequest request;
    request.key = key("file");
    request.body = Payload::from_string("first");
    request.if_none_match = true;
    ASSERT_TRUE(store_->put(request).has_value());
    request.body = Payload::from_string("second");
    const auto second = store_->put(std::move(request));
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().errno_value, EEXIST);
    EXPECT_EQ(content("file"), "first");
}

TEST_F(Objects, PutIfMatchReplacesOnlyItsVersion) {
    const auto first = put("file", "first");
    ASSERT_TRUE(first.has_value());
    PutRequest request;
    request.key = key("file");
    request.body = Payload::from_string("second");
    request.if_match = first->etag;
    ASSERT_TRUE(store_->put(request).has_value());
    request.body = Payload::from_string("third");
    const auto third = store_->put(std::move(request));
    ASSERT_FALSE(third.has_value());
    EXPECT_EQ(third.error().errno_value, ESTALE);
    EXPECT_EQ(content("file"), "second");
}

TEST_F(Objects, AWrongChecksumIsRefused) {
    PutRequest request;
    request.key = key("file");
    request.body = Payload::from_string("hello");
    request.crc32c = crc32c(request.body) ^ 1U;
    const auto written = store_->put(std::move(request));
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().errno_value, EIO);
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
}

TEST_F(Objects, WithoutChecksums) {
    StoreConfig config = default_config();
    config.checksum = "none";
    reopen(config);
    ASSERT_TRUE(put("file", "hello").has_value());
    EXPECT_EQ(content("file"), "hello");
}

TEST_F(Objects, WithAnUnsignedPayload) {
    StoreConfig config = default_config();
    config.unsigned_payload = true;
    reopen(config);
    ASSERT_TRUE(put("file", "hello").has_value());
    EXPECT_EQ(content("file"), "hello");
}

TEST_F(Objects, ACopyKeepsBytesAndMetadata) {
    const auto source = put("source", "hello", {{"note", "kept"}});
    ASSERT_TRUE(source.has_value());
    CopyRequest request;
    request.source_key = key("source");
    request.key = key("a copy+1");
    request.source_if_match = source->etag;
    const auto copied = store_->copy(std::move(request));
    ASSERT_TRUE(copied.has_value()) << copied.error().message;
    EXPECT_EQ(content("a copy+1"), "hello");
    const auto object = store_->head(key("a copy+1"));
    EXPECT_EQ(object->etag, copied->etag);
    EXPECT_EQ(object->metadata.at("note"), "kept");
}

TEST_F(Objects, ACopyIsPinnedToItsSource) {
    const auto source = put("source", "first");
    ASSERT_TRUE(source.has_value());
    ASSERT_TRUE(put("source", "second").has_value());
    CopyRequest request;
    request.source_key = key("source");
    request.key = key("copy");
    request.source_if_match = source->etag;
    const auto copied = store_->copy(std::move(request));
    ASSERT_FALSE(copied.has_value());
    EXPECT_EQ(copied.error().errno_value, ESTALE);
}

TEST_F(Objects, ACopyDoesNotReplaceWhereAskedNotTo) {
    ASSERT_TRUE(put("source", "new").has_value());
    ASSERT_TRUE(put("target", "old").has_value());
    CopyRequest request;
    request.source_key = key("source");
    request.key = key("target");
    request.if_none_match = true;
    const auto copied = store_->copy(std::move(request));
    ASSERT_FALSE(copied.has_value());
    EXPECT_EQ(copied.error().errno_value, EEXIST);
    EXPECT_EQ(content("target"), "old");
}

TEST_F(Objects, ACopyOfNothingIsENOENT) {
    CopyRequest request;
    request.source_key = key("none");
    request.key = key("copy");
    const auto copied = store_->copy(std::move(request));
    ASSERT_FALSE(copied.has_value());
    EXPECT_EQ(copied.error().errno_value, ENOENT);
}

TEST_F(Objects, RemovingIsDoneOnceAndForAll) {
    ASSERT_TRUE(put("file", "hello").has_value());
    EXPECT_TRUE(store_->remove(key("file")).has_value());
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
    EXPECT_TRUE(store_->remove(key("file")).has_value());
}

TEST_F(Objects, RemovingIsPinnedToItsVersion) {
    const auto first = put("file", "first");
    ASSERT_TRUE(first.has_value());
    ASSERT_TRUE(put("file", "second").has_value());
    EXPECT_EQ(errno_of(store_->remove(key("file"), first->etag)), ESTALE);
    EXPECT_EQ(content("file"), "second");
    EXPECT_EQ(errno_of(store_->remove(key("file"), described("file").etag)), 0);
    EXPECT_THAT(listed(), IsEmpty());
}

TEST_F(Objects, RemovingManyIsPinnedToTheirVersions) {
    const auto kept = put("kept", "first");
    const auto gone = put("gone", "first");
    ASSERT_TRUE(kept.has_value() && gone.has_value());
    ASSERT_TRUE(put("kept", "second").has_value());
    const auto failures = store_->remove_many({{key("kept"), kept->etag}, {key("gone"), gone->etag}});
    ASSERT_TRUE(failures.has_value()) << failures.error().message;
    ASSERT_EQ(failures->size(), 1U);
    EXPECT_EQ(failures->front().key, key("kept"));
    EXPECT_EQ(failures->front().error.errno_value, ESTALE);
    EXPECT_EQ(content("kept"), "second");
    EXPECT_EQ(errno_of(store_->head(key("gone"))), ENOENT);
    // The ETag that a listing shows is the same one.
    const auto rest = store_->remove_many({{key("kept"), listed().front().etag}});
    ASSERT_TRUE(rest.has_value()) << rest.error().message;
    EXPECT_THAT(*rest, IsEmpty());
    EXPECT_THAT(listed(), IsEmpty());
}

TEST_F(Objects, RemovingMany) {
    std::vector<std::string> keys;
    for (int i = 0; i < 30; ++i) {
        const std::string name = "many <&> " + std::to_string(i);
        ASSERT_TRUE(put(name, "x").has_value());
        keys.push_back(key(name));
    }
    keys.push_back(key("never there"));
    const auto failures = store_->remove_many({keys.begin(), keys.end()});
    ASSERT_TRUE(failures.has_value()) << failures.error().message;
    EXPECT_THAT(*failures, IsEmpty());
    EXPECT_THAT(listed(), IsEmpty());
}

TEST_F(Objects, AFullBatchIsRemoved) {
    ASSERT_TRUE(put("0", "x").has_value());
    ASSERT_TRUE(put("999", "x").has_value());
    std::vector<std::string> keys;
    for (int i = 0; i < 1000; ++i) {
        keys.push_back(key(std::to_string(i)));
    }
    const auto failures = store_->remove_many({keys.begin(), keys.end()});
    ASSERT_TRUE(failures.has_value()) << failures.error().message;
    EXPECT_THAT(*failures, IsEmpty());
    EXPECT_EQ(errno_of(store_->head(key("999"))), ENOENT);
    keys.push_back(key("1000"));
    EXPECT_EQ(errno_of(store_->remove_many({keys.begin(), keys.end()})), EINVAL);
}

TEST_F(Objects, AMissingBucketIsSaidSo) {
    StoreConfig config = default_config();
    config.bucket = "no-such-bucket-here";
    reopen(config);
    const auto list = store_->list({});
    ASSERT_FALSE(list.has_value());
    EXPECT_EQ(list.error().s3_code, "NoSuchBucket");
}

TEST_F(Objects, AMissingBucketIsSaidSoToAWriterToo) {
    StoreConfig config = default_config();
    config.bucket = "no-such-bucket-here";
    reopen(config);
    const auto written = put("file", "hello");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().s3_code, "NoSuchBucket");
}

TEST_F(Objects, AWrongSecretIsRefused) {
    replace_variable("AWS_SECRET_ACCESS_KEY", "wrong");
    const auto object = store_->head(key("file"));
    ASSERT_FALSE(object.has_value());
    EXPECT_EQ(object.error().errno_value, EACCES);
    EXPECT_EQ(object.error().s3_code, "SignatureDoesNotMatch");
}

TEST_F(Objects, AnUnknownAccessKeyIsRefused) {
    replace_variable("AWS_ACCESS_KEY_ID", "nobody");
    const auto written = put("file", "hello");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().errno_value, EACCES);
    EXPECT_EQ(written.error().s3_code, "InvalidAccessKeyId");
}

TEST_F(Objects, AWrongRegionIsNamed) {
    StoreConfig config = default_config();
    config.region = "eu-west-3";
    reopen(config);
    const auto written = put("file", "hello");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().s3_code, "AuthorizationHeaderMalformed");
    EXPECT_THAT(written.error().message, HasSubstr("--region us-east-1"));
}

TEST_F(Listing, OneLevelAndAllBelow) {
    for (const char* name : {"a", "dir/b", "dir/c", "dir2/d", "dir-x"}) {
        ASSERT_TRUE(put(name, name).has_value());
    }
    ListRequest request;
    request.prefix = prefix_;
    request.delimiter = "/";
    auto list = store_->list(request);
    ASSERT_TRUE(list.has_value()) << list.error().message;
    ASSERT_EQ(list->objects.size(), 2U);
    EXPECT_EQ(list->objects[0].key, key("a"));
    EXPECT_EQ(list->objects[0].size, 1U);
    EXPECT_EQ(list->objects[0].etag, described("a").etag);
    EXPECT_EQ(list->objects[1].key, key("dir-x"));
    EXPECT_THAT(list->common_prefixes, ElementsAre(key("dir/"), key("dir2/")));
    EXPECT_EQ(list->next_continuation_token, "");
    request.delimiter.clear();
    list = store_->list(std::move(request));
    ASSERT_TRUE(list.has_value());
    EXPECT_EQ(list->objects.size(), 5U);
}

TEST_F(Listing, PagesMeetWithoutGapOrOverlap) {
    std::set<std::string> expected;
    for (int i = 0; i < 25; ++i) {
        const std::string name = (i % 3 == 0 ? "dir" + std::to_string(i) + "/x" : "key +" + std::to_string(i));
        ASSERT_TRUE(put(name, "x").has_value());
        expected.insert(key(i % 3 == 0 ? name.substr(0, name.size() - 1) : name));
    }
    std::vector<std::string> seen;
    ListRequest request;
    request.prefix = prefix_;
    request.delimiter = "/";
    request.max_keys = 4;
    do {
        const auto page = store_->list(request);
        ASSERT_TRUE(page.has_value()) << page.error().message;
        EXPECT_LE(page->objects.size() + page->common_prefixes.size(), 4U);
        for (const ObjectInfo& object : page->objects) {
            seen.push_back(object.key);
        }
        seen.insert(seen.end(), page->common_prefixes.begin(), page->common_prefixes.end());
        request.continuation_token = page->next_continuation_token;
    } while (!request.continuation_token.empty() && seen.size() <= expected.size());
    EXPECT_EQ(seen.size(), expected.size());
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), expected);
}

TEST_F(Listing, StartAfter) {
    for (const char* name : {"a", "b", "c"}) {
        ASSERT_TRUE(put(name, "x").has_value());
    }
    ListRequest request;
    request.prefix = prefix_;
    request.start_after = key("a");
    const auto list = store_->list(std::move(request));
    ASSERT_TRUE(list.has_value()) << list.error().message;
    ASSERT_EQ(list->objects.size(), 2U);
    EXPECT_EQ(list->objects[0].key, key("b"));
}

TEST_F(Listing, AnEmptyPrefixIsAnEmptyList) {
    ListRequest request;
    request.prefix = key("nothing/here/");
    const auto list = store_->list(std::move(request));
    ASSERT_TRUE(list.has_value()) << list.error().message;
    EXPECT_THAT(list->objects, IsEmpty());
    EXPECT_THAT(list->common_prefixes, IsEmpty());
}

}  // namespace
}  // namespace ckptfs
