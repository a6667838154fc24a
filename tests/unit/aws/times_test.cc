// SPDX-License-Identifier: Apache-2.0
#include "aws/times.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs {
namespace {

using std::chrono::sys_days;
using std::chrono::year;

const WallTime kTime =
    sys_days(year(2009) / 10 / 12) + std::chrono::hours(17) + std::chrono::minutes(50) + std::chrono::seconds(30);

TEST(Times, BasicIso8601) {
    EXPECT_EQ(basic_iso8601(kTime), "20091012T175030Z");
    EXPECT_EQ(basic_iso8601(kTime + std::chrono::milliseconds(999)), "20091012T175030Z");
}

TEST(Times, ExtendedIso8601) {
    EXPECT_EQ(extended_iso8601(kTime + std::chrono::milliseconds(999)), "2009-10-12T17:50:30Z");
}

TEST(Times, Iso8601WithAndWithoutFraction) {
    EXPECT_EQ(parse_iso8601("2009-10-12T17:50:30.000Z"), kTime);
    EXPECT_EQ(parse_iso8601("2009-10-12T17:50:30Z"), kTime);
    EXPECT_EQ(parse_iso8601("2009-10-12T17:50:30.25Z"), kTime + std::chrono::milliseconds(250));
    EXPECT_EQ(parse_iso8601("2009-10-12T17:50:30.123456789Z"), kTime + std::chrono::milliseconds(123));
}

TEST(Times, HttpDates) {
    EXPECT_EQ(parse_http_date("Mon, 12 Oct 2009 17:50:30 GMT"), kTime);
}

TEST(Times, TheEndsOfWhatCanBeTold) {
    EXPECT_EQ(parse_iso8601("1970-01-01T00:00:00Z"), WallTime{});
    EXPECT_TRUE(parse_iso8601("2261-12-31T23:59:60.999Z").has_value());
}

TEST(Times, AnythingElseIsRefused) {
    for (const char* text :
         {"", "2009", "2009-13-12T17:50:30Z", "2009-02-30T17:50:30Z", "2009-10-12T25:50:30Z",
          "2009-10-12T17:50:30+02:00", "-009-10-12T17:50:30Z", "2009-10-12 17:50:30Z", "0001-01-01T00:00:00Z",
          "1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "9999-12-31T23:59:60Z"}) {
        EXPECT_FALSE(parse_iso8601(text).has_value()) << text;
    }
    for (const char* text :
         {"", "Mon, 12 Foo 2009 17:50:30 GMT", "Mon, 12 Oct 2009 17:50:30 CET", "Mon, 01 Jan 0001 00:00:00 GMT",
          "Mon, 12 Oct 2009 17:50:30 GMT ", "Monday, 12-Oct-09 17:50:30 GMT"}) {
        EXPECT_FALSE(parse_http_date(text).has_value()) << text;
    }
}

}  // namespace
}  // namespace ckptfs
