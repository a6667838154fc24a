// SPDX-License-Identifier: Apache-2.0
#include "s3sim/conditions.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

HttpRequest with_header(const std::string& name, const std::string& value) {
    HttpRequest request;
    request.headers.emplace_back(name, value);
    return request;
}

struct RangeCase {
    const char* header;
    std::uint64_t size;
    std::uint64_t offset;
    std::uint64_t length;
};

TEST(ResolveRange, FindsTheBytes) {
    for (const RangeCase& c : {RangeCase{"bytes=0-9", 100, 0, 10}, RangeCase{"bytes=90-", 100, 90, 10},
                               RangeCase{"bytes=-10", 100, 90, 10}, RangeCase{"bytes=-200", 100, 0, 100},
                               RangeCase{"bytes=50-1000", 100, 50, 50}, RangeCase{"bytes=99-99", 100, 99, 1}}) {
        const auto range = resolve_range(c.header, c.size);
        ASSERT_TRUE(range && *range) << c.header;
        EXPECT_EQ((*range)->offset, c.offset) << c.header;
        EXPECT_EQ((*range)->length, c.length) << c.header;
    }
}

TEST(ResolveRange, IgnoresWhatIsNotOneRange) {
    for (const char* header :
         {"bytes=9-3", "bytes=a-b", "bytes=0-1,5-6", "items=0-1", "bytes=", "bytes=-", "bytes=5"}) {
        const auto range = resolve_range(header, 100);
        ASSERT_TRUE(range) << header;
        EXPECT_FALSE(*range) << header;
    }
}

TEST(ResolveRange, RefusesWhatLiesOutside) {
    for (const auto& [header, size] : {std::pair<const char*, std::uint64_t>{"bytes=100-", 100},
                                       {"bytes=0-0", 0},
                                       {"bytes=-5", 0},
                                       {"bytes=-0", 100}}) {
        const auto range = resolve_range(header, size);
        ASSERT_FALSE(range) << header;
        EXPECT_EQ(range.error().code, "InvalidRange");
        EXPECT_EQ(range.error().status, 416);
    }
}

TEST(ResolveCopyRange, TakesOnlyAWholeRangeWithinTheSource) {
    const auto range = resolve_copy_range("bytes=10-19", 20);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->offset, 10U);
    EXPECT_EQ(range->length, 10U);
    for (const char* header : {"bytes=10-20", "bytes=10-", "bytes=-5", "10-19", "bytes=9-8"}) {
        EXPECT_FALSE(resolve_copy_range(header, 20)) << header;
    }
}

TEST(WriteConditions, IfNoneMatchNeedsAnAbsentKey) {
    const auto condition = read_write_condition(with_header("if-none-match", "*"));
    ASSERT_TRUE(condition);
    EXPECT_TRUE(check_write_condition(*condition, std::nullopt));
    EXPECT_EQ(check_write_condition(*condition, "abc").error().status, 412);
    EXPECT_EQ(read_write_condition(with_header("if-none-match", "\"abc\"")).error().status, 501);
}

TEST(WriteConditions, IfMatchNeedsThatVersion) {
    const auto condition = read_write_condition(with_header("if-match", "\"abc\""));
    ASSERT_TRUE(condition);
    EXPECT_TRUE(check_write_condition(*condition, "abc"));
    EXPECT_EQ(check_write_condition(*condition, "def").error().status, 412);
    EXPECT_EQ(check_write_condition(*condition, std::nullopt).error().status, 404);
}

TEST(ReadConditions, CompareETags) {
    const SystemTime now = std::chrono::system_clock::now();
    EXPECT_TRUE(check_read_conditions(with_header("if-match", "\"a\""), "", "a", now));
    EXPECT_TRUE(check_read_conditions(with_header("if-match", "\"b\", \"a\""), "", "a", now));
    EXPECT_EQ(check_read_conditions(with_header("if-match", "\"b\""), "", "a", now).error().status, 412);
    EXPECT_EQ(check_read_conditions(with_header("if-none-match", "\"a\""), "", "a", now).error().status, 304);
    EXPECT_EQ(check_read_conditions(with_header("x-amz-copy-source-if-match", "\"b\""), "x-amz-copy-source-", "a", now)
                  .error()
                  .status,
              412);
    EXPECT_EQ(
        check_read_conditions(with_header("x-amz-copy-source-if-none-match", "\"a\""), "x-amz-copy-source-", "a", now)
            .error()
            .status,
        412);
}

TEST(ReadConditions, CompareTimes) {
    const SystemTime modified = *parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
    const std::string same = http_date(modified);
    const std::string before = http_date(modified - std::chrono::seconds(1));
    EXPECT_EQ(check_read_conditions(with_header("if-modified-since", same), "", "a", modified).error().status, 304);
    EXPECT_TRUE(check_read_conditions(with_header("if-modified-since", before), "", "a", modified));
    EXPECT_TRUE(check_read_conditions(with_header("if-unmodified-since", same), "", "a", modified));
    EXPECT_EQ(check_read_conditions(with_header("if-unmodified-since", before), "", "a", modified).error().status, 412);
}

}  // namespace
}  // namespace ckptfs::s3sim
