// SPDX-License-Identifier: Apache-2.0
#include "s3/whole_check.h"

#include <gtest/gtest.h>

#include <string>

namespace ckptfs::s3 {
namespace {

// Of "123456789".
constexpr const char* kMd5 = "\"25f9e794323b453885f5181f1b624d0b\"";
constexpr const char* kOtherMd5 = "\"25f9e794323b453885f5181f1b624d0c\"";
constexpr const char* kCrc32c = "4waSgw==";
// As on a machine that enforces FIPS 140.
constexpr const char* kNoMd5 = "provider=none";

Verdict verdict_of(const HttpHeaders& headers, StoreHabits& habits, const char* md5_properties = nullptr,
                   const std::string& body = "123456789") {
    WholeCheck check(HttpResponse{200, headers, ""}, md5_properties);
    check.take(as_bytes(body.substr(0, 4)));
    check.take(as_bytes(body.substr(4)));
    return check.verdict(habits);
}

TEST(WholeCheck, AnETagTellsOfDamageWhereOthersWereTheMd5) {
    StoreHabits habits;
    EXPECT_EQ(verdict_of({{"etag", kOtherMd5}}, habits), Verdict::kNothingKnown);
    EXPECT_EQ(verdict_of({{"etag", kMd5}}, habits), Verdict::kRight);
    EXPECT_EQ(verdict_of({{"etag", kOtherMd5}}, habits), Verdict::kDamaged);
}

TEST(WholeCheck, TheStoresChecksumComesBeforeTheETag) {
    StoreHabits habits;
    EXPECT_EQ(verdict_of({{"etag", kOtherMd5}, {"x-amz-checksum-crc32c", kCrc32c}}, habits), Verdict::kRight);
    EXPECT_EQ(verdict_of({{"etag", kMd5}, {"x-amz-checksum-crc32c", "AAAAAA=="}}, habits), Verdict::kDamaged);
}

TEST(WholeCheck, WithoutMd5AnETagTellsNothingAndAChecksumAsMuchAsEver) {
    StoreHabits habits;
    for (const char* etag : {kMd5, kOtherMd5}) {
        EXPECT_EQ(verdict_of({{"etag", etag}}, habits, kNoMd5), Verdict::kNothingKnown);
    }
    EXPECT_EQ(verdict_of({{"etag", kMd5}, {"x-amz-checksum-crc32c", kCrc32c}}, habits, kNoMd5), Verdict::kRight);
    EXPECT_EQ(verdict_of({{"etag", kMd5}, {"x-amz-checksum-crc32c", kCrc32c}}, habits, kNoMd5, "123456780"),
              Verdict::kDamaged);
}

}  // namespace
}  // namespace ckptfs::s3
