// SPDX-License-Identifier: Apache-2.0
#include "codec/frame_coding.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/digest.h"
#include "codec/codecs.h"
#include "codec/container.h"
#include "unit/codec/frame_fixture.h"

namespace ckptfs::testing {
namespace {

std::string text(std::size_t size) {
    std::string bytes;
    for (std::size_t line = 0; bytes.size() < size; ++line) {
        bytes += "layer." + std::to_string(line * 7919 % 1000) + ".weight\n";
    }
    bytes.resize(size);
    return bytes;
}

// In pieces, as several writes leave them.
Payload in_pieces(const std::string& bytes) {
    Payload payload;
    for (std::size_t begin = 0; begin < bytes.size(); begin += 100'000) {
        payload.append(Payload::from_string(bytes.substr(begin, 100'000)));
    }
    return payload;
}

std::string decode(const std::string& stored, std::size_t size, std::uint32_t checksum,
                   FrameChecksum kind = FrameChecksum::kXxh64) {
    std::string raw(size, '\0');
    const Status decoded =
        decode_frame(Payload::from_string(stored), {}, std::as_writable_bytes(std::span(raw)), kind, checksum);
    return decoded ? raw : "error: " + decoded.error().message;
}

void expect_back(const std::string& raw, const Payload& payload, FrameCoding coding) {
    const Coded coded = encode(payload, coding);
    EXPECT_EQ(coded.stored.size(), coded.frame.record.stored_size);
    EXPECT_EQ(coded.frame.crc32c, crc32c(as_bytes(coded.stored)));
    EXPECT_LE(coded.stored.size(), kMaxStoredFrame);
    ASSERT_EQ(decode(coded.stored, raw.size(), coded.frame.record.checksum, coding.checksum), raw) << raw.size();
}

TEST(FrameCoding, BringsBackEveryByte) {
    for (const CodingChoice choice :
         {CodingChoice::kRaw, CodingChoice::kZstd, CodingChoice::kPlanes, CodingChoice::kZerosOnly}) {
        for (const std::size_t size : {std::size_t{1}, std::size_t{255}, std::size_t{131'072}, std::size_t{131'073},
                                       std::size_t{700'000}, kFrameSize}) {
            for (const std::string& raw : {noise(size), text(size), std::string(size, '\0')}) {
                for (const FrameChecksum kind : {FrameChecksum::kXxh64, FrameChecksum::kCrc32c}) {
                    expect_back(raw, Payload::from_string(raw), {choice, 3, kind});
                    expect_back(raw, in_pieces(raw), {choice, 3, kind});
                }
            }
        }
    }
}

TEST(FrameCoding, ZerosAreFoundAlsoWhereTimeIsShort) {
    constexpr FrameCoding kInAHurry{CodingChoice::kZerosOnly, 0, FrameChecksum::kCrc32c};
    EXPECT_LT(encode(Payload::from_string(std::string(kFrameSize, '\0')), kInAHurry).stored.size(), 1000U);
    // A quarter of it, in runs of a page; and what several writes left.
    std::string sparse = noise(kFrameSize);
    for (std::size_t begin = 4096; begin < kFrameSize; begin += 16384) {
        sparse.replace(begin, 4096, 4096, '\0');
    }
    EXPECT_LT(encode(Payload::from_string(sparse), kInAHurry).stored.size(), kFrameSize * 4 / 5);
    EXPECT_LT(encode(in_pieces(sparse), kInAHurry).stored.size(), kFrameSize * 4 / 5);
    // All else stays where it is.
    EXPECT_TRUE(encode(Payload::from_string(text(kFrameSize)), kInAHurry).frame.stored);
    EXPECT_TRUE(encode(Payload::from_string(noise(kFrameSize)), kInAHurry).frame.stored);
}

TEST(Codecs, FindZerosHoweverShortTimeIs) {
    const Payload raw = Payload::from_string(std::string(kFrameSize, '\0'));
    for (const char* name : {"auto", "zstd"}) {
        std::vector<std::byte> output(kMaxStoredFrame);
        const auto encoder = (*make_codec({name, {}}))->encoder("model.pt");
        EXPECT_LT(encoder->encode(raw, output, EncodeEffort::kLeast).value().record.stored_size, 1000U) << name;
    }
}

TEST(FrameCoding, WhatDoesNotShrinkIsSharedNotCopied) {
    const Payload raw = Payload::from_string(noise(kFrameSize));
    const Coded coded = encode(raw);
    ASSERT_TRUE(coded.frame.stored);
    EXPECT_LT(coded.stored.size(), kFrameSize + kFrameSize / 10'000);
    EXPECT_EQ(coded.frame.stored->slices()[1].bytes.data(), raw.slices()[0].bytes.data());
}

TEST(FrameCoding, TextShrinks) {
    EXPECT_LT(encode(Payload::from_string(text(kFrameSize))).stored.size(), kFrameSize / 4);
}

TEST(FrameCoding, PaddingStandsBeforeTheFrame) {
    const std::string raw = text(5000);
    const Coded coded = encode(Payload::from_string(raw));
    const std::string padded = skippable_frame(1000).to_string() + coded.stored;
    EXPECT_EQ(decode(padded, raw.size(), coded.frame.record.checksum), raw);
}

TEST(FrameCoding, EveryDamageIsSeen) {
    const std::string raw = text(5000);
    const Coded coded = encode(Payload::from_string(raw));
    for (std::size_t size = 0; size < coded.stored.size(); ++size) {
        ASSERT_TRUE(decode(coded.stored.substr(0, size), raw.size(), coded.frame.record.checksum).starts_with("error"));
    }
    for (std::size_t bit = 0; bit < coded.stored.size() * 8; ++bit) {
        std::string bad = coded.stored;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
        const std::string decoded = decode(bad, raw.size(), coded.frame.record.checksum);
        ASSERT_TRUE(decoded.starts_with("error") || decoded == raw) << bit;
    }
    EXPECT_TRUE(decode(coded.stored, raw.size() + 1, coded.frame.record.checksum).starts_with("error"));
    EXPECT_TRUE(decode(coded.stored, raw.size() - 1, coded.frame.record.checksum).starts_with("error"));
    EXPECT_TRUE(decode(coded.stored, raw.size(), coded.frame.record.checksum + 1).starts_with("error"));
}

TEST(FrameCoding, RefusesACodingOfAnotherVersion) {
    EXPECT_NE(decode("CKPTnine", 100, 0).find("newer ckptfs"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs::testing
