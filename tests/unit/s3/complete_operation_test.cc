// SPDX-License-Identifier: Apache-2.0
#include "s3/complete_operation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptfs::s3 {
namespace {

using Parts = std::vector<UploadedPart>;

const Parts kSent{{1, "\"a\"", "AAAAAA==", 100}, {2, "\"b\"", "BBBBBB==", 50}};

std::string etags_after(Parts sent, const Parts& stored, PartsFound expected) {
    EXPECT_EQ(take_stored_etags(sent, stored), expected);
    std::string etags;
    for (const UploadedPart& part : sent) {
        etags += part.etag;
    }
    return etags;
}

TEST(StoredETags, TheSameBytesUnderAnotherETagAreTaken) {
    EXPECT_EQ(
        etags_after(kSent, {{1, "\"c\"", "AAAAAA==", 100}, {2, "\"b\"", "BBBBBB==", 50}}, PartsFound::kUnderOtherETags),
        "\"c\"\"b\"");
    EXPECT_EQ(
        etags_after(kSent, {{2, "\"d\"", "BBBBBB==", 50}, {1, "\"c\"", "AAAAAA==", 100}}, PartsFound::kUnderOtherETags),
        "\"c\"\"d\"");
}

TEST(StoredETags, OtherBytesAreNot) {
    EXPECT_EQ(etags_after(kSent, {{1, "\"c\"", "CCCCCC==", 100}, {2, "\"b\"", "BBBBBB==", 50}}, PartsFound::kOthers),
              "\"a\"\"b\"");
    EXPECT_EQ(etags_after(kSent, {{1, "\"c\"", "AAAAAA==", 101}, {2, "\"b\"", "BBBBBB==", 50}}, PartsFound::kOthers),
              "\"a\"\"b\"");
    // One that may be taken does not help the other.
    EXPECT_EQ(etags_after(kSent, {{1, "\"c\"", "AAAAAA==", 100}, {2, "\"d\"", "DDDDDD==", 50}}, PartsFound::kOthers),
              "\"a\"\"b\"");
}

TEST(StoredETags, BytesOfWhichNothingIsKnownAreNot) {
    EXPECT_EQ(etags_after(kSent, {{1, "\"c\"", "", 100}, {2, "\"b\"", "", 50}}, PartsFound::kOthers), "\"a\"\"b\"");
    EXPECT_EQ(etags_after({{1, "\"a\"", "", 100}}, {{1, "\"c\"", "", 100}}, PartsFound::kOthers), "\"a\"");
}

TEST(StoredETags, APartThatIsNotThereIsMissing) {
    EXPECT_EQ(etags_after(kSent, {{1, "\"c\"", "AAAAAA==", 100}}, PartsFound::kOthers), "\"a\"\"b\"");
    EXPECT_EQ(etags_after(kSent, {}, PartsFound::kOthers), "\"a\"\"b\"");
}

TEST(StoredETags, NothingIsGainedWhereAllAreTheSame) {
    EXPECT_EQ(etags_after(kSent, kSent, PartsFound::kAsSent), "\"a\"\"b\"");
    // Checksums do not matter then: a store may leave them out.
    EXPECT_EQ(etags_after(kSent, {{1, "\"a\"", "", 100}, {2, "\"b\"", "", 50}}, PartsFound::kAsSent), "\"a\"\"b\"");
}

}  // namespace
}  // namespace ckptfs::s3
