// SPDX-License-Identifier: Apache-2.0
#include "s3/responses.h"

#include <gtest/gtest.h>

namespace ckptfs::s3 {
namespace {

TEST(ContentRange, IsReadWhereItIsWhole) {
    const auto range = parse_content_range("bytes 5-9/443");
    ASSERT_TRUE(range.has_value());
    EXPECT_EQ(range->first, 5U);
    EXPECT_EQ(range->last, 9U);
    EXPECT_EQ(range->total, 443U);
}

TEST(ContentRange, AnythingElseIsNothing) {
    for (const char* text :
         {"", "bytes", "bytes 5-9", "bytes 5-9/*", "bytes */443", "bytes 9-5/443", "bytes 0-443/443", "bytes -1-9/443",
          "bytes 0-9/18446744073709551615", "items 0-9/443", "bytes 0/9-443", "bytes 0-9/443 "}) {
        EXPECT_FALSE(parse_content_range(text).has_value()) << text;
    }
}

TEST(ETag, IsTheSameTextWithAndWithoutItsQuotes) {
    EXPECT_EQ(quoted_etag("\"e-2\""), "\"e-2\"");
    EXPECT_EQ(quoted_etag("e-2"), "\"e-2\"");
    EXPECT_EQ(quoted_etag("W/\"e\""), "W/\"e\"");
    EXPECT_EQ(quoted_etag(""), "");
}

TEST(ObjectInfo, TakesTheWholeSizeFromTheRange) {
    HttpResponse response;
    response.headers = {{"content-length", "5"},     {"content-range", "bytes 5-9/443"}, {"etag", "e"},
                        {"x-amz-meta-note", "kept"}, {"content-type", "text/plain"},     {"cache-control", "no-store"}};
    const auto object = object_info("k", response);
    ASSERT_TRUE(object.has_value());
    EXPECT_EQ(object->key, "k");
    EXPECT_EQ(object->size, 443U);
    EXPECT_EQ(object->etag, "\"e\"");
    EXPECT_EQ(object->metadata.at("note"), "kept");
    EXPECT_EQ(object->content_type, "text/plain");
    EXPECT_EQ(object->other_headers.at("cache-control"), "no-store");
}

TEST(ObjectInfo, WithoutASizeThereIsNone) {
    HttpResponse response;
    EXPECT_FALSE(object_info("k", response).has_value());
    response.headers = {{"content-length", "-1"}};
    EXPECT_FALSE(object_info("k", response).has_value());
    response.headers = {{"content-length", "99999999999999999999"}};
    EXPECT_FALSE(object_info("k", response).has_value());
}

TEST(RetryAfter, IsReadAsSecondsAndAsADate) {
    const auto asked = [](int status, const std::string& value) {
        return retry_after({status, {{"date", "Mon, 12 Oct 2009 17:50:00 GMT"}, {"retry-after", value}}, ""});
    };
    EXPECT_EQ(asked(503, "7"), std::chrono::seconds(7));
    EXPECT_EQ(asked(429, "120"), std::chrono::minutes(2));
    EXPECT_EQ(asked(503, "Mon, 12 Oct 2009 17:50:30 GMT"), std::chrono::seconds(30));
    EXPECT_EQ(asked(503, "Mon, 12 Oct 2009 17:40:30 GMT"), Milliseconds(0));
    EXPECT_EQ(asked(500, "7"), Milliseconds(0));
    EXPECT_EQ(asked(503, "-7"), Milliseconds(0));
    EXPECT_EQ(asked(503, "soon"), Milliseconds(0));
    EXPECT_EQ(asked(503, ""), Milliseconds(0));
    EXPECT_GT(asked(503, "9000000000000000000"), std::chrono::hours(24));
}

}  // namespace
}  // namespace ckptfs::s3
