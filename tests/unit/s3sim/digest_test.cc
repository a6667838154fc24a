// SPDX-License-Identifier: Apache-2.0
#include "s3sim/digest.h"

#include <gtest/gtest.h>

#include "s3sim/checksum_headers.h"

namespace ckptfs::s3sim {
namespace {

// The check values of the CRC catalogue, for the nine digits.
TEST(Digest, KnowsTheCheckValues) {
    EXPECT_EQ(to_hex(digest_of(DigestKind::kCrc32, "123456789")), "cbf43926");
    EXPECT_EQ(to_hex(digest_of(DigestKind::kCrc32c, "123456789")), "e3069283");
    EXPECT_EQ(to_hex(digest_of(DigestKind::kCrc64Nvme, "123456789")), "ae8b14860a799888");
    EXPECT_EQ(to_hex(digest_of(DigestKind::kMd5, "")), "d41d8cd98f00b204e9800998ecf8427e");
    EXPECT_EQ(to_hex(digest_of(DigestKind::kSha1, "")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(to_hex(digest_of(DigestKind::kSha256, "")),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, JoinsCrcs) {
    const std::string first(1000, 'x');
    const std::string second(70'001, 'y');
    for (const DigestKind kind : {DigestKind::kCrc32, DigestKind::kCrc32c, DigestKind::kCrc64Nvme}) {
        EXPECT_EQ(to_hex(join_crcs(kind, digest_of(kind, first), digest_of(kind, second), second.size())),
                  to_hex(digest_of(kind, first + second)));
    }
}

TEST(Digest, Base64BothWays) {
    for (const char* text : {"a", "ab", "abc", "abcd"}) {
        EXPECT_EQ(from_base64(to_base64(text)), text);
    }
    for (const char* wrong : {"", "abc", "a===", "????"}) {
        EXPECT_FALSE(from_base64(wrong)) << wrong;
    }
}

TEST(Checksums, ACompositeOneIsTheChecksumOfTheParts) {
    const std::string part = to_base64(digest_of(DigestKind::kCrc32c, "123456789"));
    const std::string raw = digest_of(DigestKind::kCrc32c, "123456789");
    EXPECT_EQ(composite_checksum(DigestKind::kCrc32c, {part, part}),
              to_base64(digest_of(DigestKind::kCrc32c, raw + raw)) + "-2");
}

TEST(Checksums, ClaimsAreReadFromTheHeaders) {
    HttpRequest request;
    request.headers = {{"x-amz-checksum-crc32c", "4waSgw=="}, {"x-amz-checksum-algorithm", "CRC32C"}};
    const auto claimed = read_claimed_checksums(request);
    ASSERT_TRUE(claimed);
    ReceivedBody body;
    body.digests[DigestKind::kCrc32c] = digest_of(DigestKind::kCrc32c, "123456789");
    EXPECT_TRUE(verify_checksums(*claimed, body));
    body.digests[DigestKind::kCrc32c] = digest_of(DigestKind::kCrc32c, "123456780");
    EXPECT_EQ(verify_checksums(*claimed, body).error().code, "BadDigest");
}

TEST(Checksums, MalformedClaimsAreRefused) {
    const auto code = [](std::vector<NameValue> headers) {
        HttpRequest request;
        request.headers = std::move(headers);
        const auto claimed = read_claimed_checksums(request);
        return claimed ? std::string() : claimed.error().code;
    };
    EXPECT_EQ(code({{"content-md5", "nonsense"}}), "InvalidDigest");
    EXPECT_EQ(code({{"x-amz-checksum-crc32c", "AAAA"}}), "InvalidRequest");
    EXPECT_EQ(code({{"x-amz-checksum-crc32c", "4waSgw=="}, {"x-amz-checksum-crc32", "4waSgw=="}}), "InvalidRequest");
    EXPECT_EQ(code({{"x-amz-sdk-checksum-algorithm", "CRC32C"}}), "InvalidRequest");
    EXPECT_EQ(code({{"x-amz-content-sha256", "abc"}}), "InvalidArgument");
    EXPECT_EQ(code({{"x-amz-content-sha256", "UNSIGNED-PAYLOAD"}}), "");
}

}  // namespace
}  // namespace ckptfs::s3sim
