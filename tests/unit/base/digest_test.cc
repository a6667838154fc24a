// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::mt19937_64& random) {
    std::vector<std::byte> bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    return bytes;
}

// Bit by bit from the definition, to check the library and our use of it.
std::uint32_t slow_crc32c(ByteSpan bytes) {
    std::uint32_t reg = 0xFFFFFFFF;
    for (const std::byte each : bytes) {
        reg ^= std::to_integer<std::uint32_t>(each);
        for (int bit = 0; bit < 8; ++bit) {
            reg = (reg >> 1) ^ ((reg & 1U) != 0 ? 0x82F63B78U : 0U);
        }
    }
    return ~reg;
}

Payload in_slices(const std::vector<std::byte>& bytes, std::size_t slice_size) {
    Payload payload;
    const auto owner = std::make_shared<const std::vector<std::byte>>(bytes);
    for (std::size_t offset = 0; offset < owner->size(); offset += slice_size) {
        const std::size_t size = std::min(slice_size, owner->size() - offset);
        payload.append(Slice{owner, ByteSpan(*owner).subspan(offset, size)});
    }
    return payload;
}

TEST(Crc32c, MatchesThePublishedExamples) {
    // RFC 3720 B.4.
    const std::vector<std::byte> zeros(32, std::byte{0});
    const std::vector<std::byte> ones(32, std::byte{0xFF});
    std::vector<std::byte> rising(32);
    for (std::size_t index = 0; index < rising.size(); ++index) {
        rising[index] = static_cast<std::byte>(index);
    }
    EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
    EXPECT_EQ(crc32c(ones), 0x62A8AB43U);
    EXPECT_EQ(crc32c(rising), 0x46DD794EU);
    EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
    EXPECT_EQ(crc32c(ByteSpan{}), 0U);
}

TEST(Crc32c, MatchesItsDefinitionAtEveryLengthAndAlignment) {
    std::mt19937_64 random(1);
    const auto bytes = random_bytes(700, random);
    for (std::size_t start = 0; start < 16; ++start) {
        for (std::size_t size = 0; start + size <= bytes.size(); size += 1 + size / 8) {
            const ByteSpan span = ByteSpan(bytes).subspan(start, size);
            ASSERT_EQ(crc32c(span), slow_crc32c(span)) << start << " " << size;
        }
    }
}

TEST(Crc32c, ContinuesFromWhatCameBefore) {
    std::mt19937_64 random(2);
    const auto bytes = random_bytes(10'000, random);
    const std::uint32_t whole = crc32c(bytes);
    for (const std::size_t cut : {0U, 1U, 7U, 4096U, 9'999U, 10'000U}) {
        const std::uint32_t head = crc32c(ByteSpan(bytes).first(cut));
        EXPECT_EQ(crc32c(ByteSpan(bytes).subspan(cut), head), whole);
    }
    EXPECT_EQ(crc32c(in_slices(bytes, 333)), whole);
}

TEST(Crc32cCombine, EqualsTheDirectComputationForRandomSplits) {
    std::mt19937_64 random(3);
    const auto bytes = random_bytes(300'000, random);
    for (int round = 0; round < 500; ++round) {
        const std::size_t size = random() % bytes.size();
        const std::size_t cut = size == 0 ? 0 : random() % (size + 1);
        const ByteSpan all = ByteSpan(bytes).first(size);
        const std::uint32_t head = crc32c(all.first(cut));
        const std::uint32_t tail = crc32c(all.subspan(cut));
        ASSERT_EQ(crc32c_combine(head, tail, size - cut), crc32c(all)) << size << " cut at " << cut;
    }
}

TEST(Crc32cCombine, FoldsManyPiecesIncludingEmptyOnes) {
    std::mt19937_64 random(4);
    const auto bytes = random_bytes(1 << 20, random);
    std::uint32_t combined = 0;
    for (std::size_t offset = 0; offset < bytes.size();) {
        const std::size_t size = std::min<std::size_t>(random() % 5'000, bytes.size() - offset);
        combined = crc32c_combine(combined, crc32c(ByteSpan(bytes).subspan(offset, size)), size);
        offset += size;
    }
    EXPECT_EQ(combined, crc32c(bytes));
}

TEST(Crc32cCombine, HandlesLengthsBeyondFourGiB) {
    // 5 GiB of zeros in one step and in five.
    const std::vector<std::byte> zeros(1 << 20, std::byte{0});
    std::uint32_t gib = 0;
    for (int piece = 0; piece < 1024; ++piece) {
        gib = crc32c_combine(gib, crc32c(zeros), zeros.size());
    }
    const std::uint64_t kGiB = std::uint64_t{1} << 30;
    std::uint32_t four = gib;
    for (int piece = 1; piece < 4; ++piece) {
        four = crc32c_combine(four, gib, kGiB);
    }
    EXPECT_EQ(crc32c_combine(gib, four, 4 * kGiB), crc32c_combine(four, gib, kGiB));
}

TEST(Crc32cBase64, IsWhatS3Shows) {
    // 0xE3069283, highest byte first.
    EXPECT_EQ(crc32c_base64(crc32c(as_bytes("123456789"))), "4waSgw==");
    EXPECT_EQ(crc32c_base64(0), "AAAAAA==");
}

TEST(Sha256, MatchesThePublishedExamples) {
    // FIPS 180-4 examples; the empty one is the payload hash of every bodyless signed request.
    EXPECT_EQ(hex(sha256(ByteSpan{})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hex(sha256(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hex(sha256(Payload())), hex(sha256(ByteSpan{})));
}

TEST(Sha256, OfAPayloadIsThatOfItsBytes) {
    std::mt19937_64 random(5);
    const auto bytes = random_bytes(100'001, random);
    EXPECT_EQ(sha256(in_slices(bytes, 4'099)), sha256(bytes));
    EXPECT_EQ(md5(in_slices(bytes, 4'099)), md5(bytes));
}

TEST(HmacSha256, MatchesRfc4231) {
    const std::vector<std::byte> key(20, std::byte{0x0B});
    EXPECT_EQ(hex(hmac_sha256(key, as_bytes("Hi There"))),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hex(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    const std::vector<std::byte> long_key(131, std::byte{0xAA});
    EXPECT_EQ(hex(hmac_sha256(long_key, as_bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, TakesAnEmptyKeyAndAnEmptyMessage) {
    EXPECT_EQ(hex(hmac_sha256(ByteSpan{}, ByteSpan{})),
              "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Md5, MatchesRfc1321InContentMd5Form) {
    EXPECT_EQ(hex(md5(as_bytes("abc")).value()), "900150983cd24fb0d6963f7d28e17f72");
    EXPECT_EQ(base64_encode(md5(ByteSpan{}).value()), "1B2M2Y8AsgTpgAmY7PhCfg==");
}

TEST(Md5, IsMissingWhereNoProviderHasIt) {
    EXPECT_EQ(md5(as_bytes("abc"), "provider=none"), std::nullopt);
    EXPECT_EQ(md5(Payload(), "provider=none"), std::nullopt);
    EXPECT_EQ(running_digest(DigestKind::kMd5, "provider=none"), nullptr);
    EXPECT_NE(running_digest(DigestKind::kSha256, "provider=none"), nullptr);
}

TEST(Base64, MatchesRfc4648) {
    const std::pair<std::string, std::string> examples[] = {{"", ""},
                                                            {"f", "Zg=="},
                                                            {"fo", "Zm8="},
                                                            {"foo", "Zm9v"},
                                                            {"foob", "Zm9vYg=="},
                                                            {"fooba", "Zm9vYmE="},
                                                            {"foobar", "Zm9vYmFy"}};
    for (const auto& [plain, encoded] : examples) {
        EXPECT_EQ(base64_encode(as_bytes(plain)), encoded);
        const auto decoded = base64_decode(encoded);
        ASSERT_TRUE(decoded.has_value());
        EXPECT_EQ(as_text(*decoded), plain);
    }
}

TEST(Base64, RefusesEverythingElse) {
    for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "====", "Z===", "Zm9\n", "Zm-v", "=m9v", "Zg==Zg==", "Zm 9"}) {
        EXPECT_FALSE(base64_decode(text).has_value()) << text;
    }
}

TEST(Base64, GivesBackAnyBytes) {
    std::mt19937_64 random(6);
    for (std::size_t size = 0; size < 100; ++size) {
        const auto bytes = random_bytes(size, random);
        EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
    }
}

TEST(RunningDigest, IsThatOfAllPieces) {
    // As catalogues of checksums have them (CRC-64/NVME: AE8B14860A799888), and sha1sum and its like.
    const std::vector<std::pair<DigestKind, std::string>> expected = {
        {DigestKind::kCrc32, "y/Q5Jg=="},
        {DigestKind::kCrc32c, "4waSgw=="},
        {DigestKind::kCrc64Nvme, "rosUhgp5mIg="},
        {DigestKind::kSha1, "98O8HYCOBHMq32eZZczDTKeuNEE="},
        {DigestKind::kSha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="},
        {DigestKind::kMd5, "25f9e794323b453885f5181f1b624d0b"}};
    for (const auto& [kind, text] : expected) {
        for (const std::size_t piece : {std::size_t{1}, std::size_t{4}, std::size_t{9}}) {
            const auto digest = running_digest(kind);
            for (std::string_view rest = "123456789"; !rest.empty(); rest.remove_prefix(std::min(piece, rest.size()))) {
                digest->take(as_bytes(rest.substr(0, piece)));
            }
            EXPECT_EQ(digest->text(), text) << piece;
        }
    }
}

}  // namespace
}  // namespace ckptfs
