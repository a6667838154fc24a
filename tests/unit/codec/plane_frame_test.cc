// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_frame.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "codec/plane_layout.h"
#include "support/effort.h"
#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

Bytes encode(const Bytes& raw) {
    PlaneCoder coder;
    // Of the exact size on the heap: a sanitizer sees every byte beyond.
    Bytes stored(PlaneCoder::bound(raw.size()));
    const std::size_t written = coder.encode(raw, stored);
    EXPECT_LT(written, raw.size());
    stored.resize(written);
    return stored;
}

Status decode(const Bytes& stored, Bytes& raw) {
    PlaneCoder coder;
    return coder.decode(stored, {}, raw);
}

// How much is saved, in percent.
double round_trip(const Bytes& raw) {
    const Bytes stored = encode(raw);
    if (stored.empty()) {
        return 0;
    }
    Bytes back(raw.size());
    const Status decoded = decode(stored, back);
    EXPECT_TRUE(decoded) << decoded.error().message;
    EXPECT_TRUE(back == raw) << raw.size() << " bytes";
    return 100 - 100 * static_cast<double>(stored.size()) / static_cast<double>(raw.size());
}

Bytes shifted(std::size_t by, const Bytes& bytes) {
    Bytes all = testing::joined({testing::random_bytes(by), bytes});
    all.resize(bytes.size());
    return all;
}

constexpr std::size_t kFrame = kMaxPlaneFrameRaw;

TEST(PlaneFrame, SavesWhatWeightsHaveAtEveryPhase) {
    struct Type {
        const char* name;
        Bytes bytes;
        double saved;
    };
    const Type types[] = {{"bf16", testing::bf16(kFrame), 30},
                          {"fp16", testing::fp16(kFrame), 12},
                          {"fp32", testing::fp32(kFrame), 15},
                          {"fp64", testing::fp64(kFrame), 8}};
    for (const auto& [name, bytes, saved] : types) {
        const double aligned = round_trip(bytes);
        EXPECT_GT(aligned, saved) << name;
        for (std::size_t offset = 1; offset < 8; ++offset) {
            EXPECT_NEAR(round_trip(shifted(offset, bytes)), aligned, 0.3) << name << " at " << offset;
        }
    }
}

TEST(PlaneFrame, SavesMostOfTextIntegersAndConstants) {
    EXPECT_GT(round_trip(testing::text(kFrame)), 60);
    EXPECT_GT(round_trip(testing::token_ids(kFrame)), 75);
    EXPECT_GT(round_trip(Bytes(kFrame)), 99.9);
    EXPECT_GT(round_trip(Bytes(kFrame, std::byte{0xff})), 99.9);
    Bytes ones(kFrame);
    for (std::size_t i = 0; i < ones.size(); i += 4) {
        const float one = 1;
        std::memcpy(ones.data() + i, &one, sizeof(one));
    }
    EXPECT_GT(round_trip(ones), 99.9);
}

// Rows of other sizes: what an embedding's moments are.
Bytes moments() {
    Bytes bytes = testing::fp32(kFrame);
    for (std::size_t row = 0; row < kFrame / 1024; ++row) {
        for (std::size_t i = 0; i < 256; ++i) {
            float value = 0;
            std::memcpy(&value, bytes.data() + row * 1024 + i * 4, sizeof(value));
            value = row % 4 == 0 ? 0 : std::ldexp(value, -static_cast<int>(row * 7 % 20));
            std::memcpy(bytes.data() + row * 1024 + i * 4, &value, sizeof(value));
        }
    }
    return bytes;
}

TEST(PlaneFrame, SavesRowsOfZerosWholeAndRowsOfOtherSizesAlmostAsMuchAsEqualOnes) {
    const double equal_rows = round_trip(testing::fp32(kFrame));
    EXPECT_GT(round_trip(moments()), 25 + 0.75 * equal_rows - 1.5);
}

TEST(PlaneFrame, PacksDeadBits) {
    Bytes bytes = testing::fp32(kFrame);
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
        bytes[i] = std::byte{0};
        bytes[i + 1] &= std::byte{0xe0};
    }
    // 13 of 32 bits, and what weights save anyway.
    EXPECT_GT(round_trip(bytes), 40 + 14);
}

TEST(PlaneFrame, RandomBytesAreGivenBack) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, kLayoutCell, kFrame}) {
        EXPECT_TRUE(encode(testing::random_bytes(size)).empty()) << size;
    }
}

TEST(PlaneFrame, RoundTripsChangesOfLayoutInsideAFrame) {
    const Bytes mixed =
        testing::joined({testing::text(1001), testing::bf16(200001), testing::random_bytes(100000),
                         testing::fp32(300003), Bytes(150000), testing::fp64(100007), testing::token_ids(150001)});
    ASSERT_LT(mixed.size(), kFrame);
    EXPECT_GT(round_trip(mixed), 15);
}

TEST(PlaneFrame, RoundTripsEverySmallSizeAndThoseAroundEveryBoundary) {
    std::vector<std::size_t> sizes;
    for (std::size_t size = 1; size <= 300; ++size) {
        sizes.push_back(size);
    }
    for (const std::size_t boundary :
         {std::size_t{1024}, std::size_t{4096}, kElementsPerSubBlock, kLayoutCell, kLayoutCell + kLayoutCell / 2,
          2 * kLayoutCell, 3 * kElementsPerSubBlock, 4 * kElementsPerSubBlock, 6 * kElementsPerSubBlock, kFrame}) {
        for (std::size_t size = boundary - 9; size <= std::min(boundary + 9, kFrame); size += 3) {
            sizes.push_back(size);
        }
    }
    const Bytes sources[] = {testing::bf16(kFrame), testing::fp32(kFrame), testing::fp64(kFrame), Bytes(kFrame),
                             testing::text(kFrame)};
    for (const Bytes& source : sources) {
        for (const std::size_t size : sizes) {
            round_trip(Bytes(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(size)));
        }
    }
}

TEST(PlaneFrame, EqualInputGivesEqualBytes) {
    const Bytes first = testing::joined({testing::fp32(500001), testing::text(200000), testing::bf16(200001)});
    const Bytes second = testing::bf16(kFrame, 2);
    const Bytes alone = encode(first);
    PlaneCoder coder;
    Bytes stored(PlaneCoder::bound(kFrame));
    for (int i = 0; i < 3; ++i) {
        ASSERT_GT(coder.encode(second, stored), 0U);
        const std::size_t written = coder.encode(first, stored);
        ASSERT_EQ(written, alone.size());
        EXPECT_EQ(std::memcmp(stored.data(), alone.data(), written), 0);
    }
}

void expect_eio(const Bytes& stored, std::size_t raw_size) {
    Bytes back(raw_size);
    const Status decoded = decode(stored, back);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().errno_value, EIO);
    EXPECT_FALSE(decoded.error().message.empty());
}

Bytes small_frame(Bytes& raw) {
    raw = testing::fp32(4003);
    return encode(raw);
}

TEST(PlaneFrame, EveryTruncationIsAnError) {
    Bytes raw;
    const Bytes stored = small_frame(raw);
    for (std::size_t size = 0; size < stored.size(); ++size) {
        expect_eio(Bytes(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(size)), raw.size());
    }
    expect_eio(testing::joined({stored, Bytes(1)}), raw.size());
}

TEST(PlaneFrame, FlippedBitsNeitherCrashNorGoUnseenInTheHeaders) {
    Bytes raw;
    const Bytes stored = small_frame(raw);
    // 7 and 8 have no factor in common: all bits of a byte get their turn.
    for (std::size_t bit = 0; bit < stored.size() * 8; bit += testing::kSanitized ? 7 : 1) {
        Bytes flipped = stored;
        flipped[bit / 8] ^= std::byte{1} << (bit % 8);
        Bytes back(raw.size());
        const Status decoded = decode(flipped, back);
        // Magic, version and size.
        if (bit < 64) {
            EXPECT_FALSE(decoded) << bit;
        }
        if (!decoded) {
            EXPECT_EQ(decoded.error().errno_value, EIO);
        }
    }
}

TEST(PlaneFrame, AnotherSizeThanExpectedIsAnError) {
    Bytes raw;
    const Bytes stored = small_frame(raw);
    expect_eio(stored, raw.size() - 1);
    expect_eio(stored, raw.size() + 1);
    expect_eio(stored, kFrame);
    expect_eio(stored, 2 * kFrame);
}

struct Claim {
    const char* what;
    std::vector<unsigned> bytes;
};

TEST(PlaneFrame, ClaimsThatCannotBeAreErrors) {
    // Frame header of 16 bytes, then sub-block header, plane headers, bodies.
    const std::vector<unsigned> frame = {'C', 'K', 'P', 'F', 1, 16, 0, 0};
    const Claim claims[] = {
        {"more raw bytes than the frame", {0, 17, 0, 0, 1, 1, 0, 0, 9}},
        {"no raw bytes", {0, 0, 0, 0, 1, 1, 0, 0, 9}},
        {"16 MiB stored", {0, 16, 0, 0, 1, 0xff, 0xff, 0xff, 9}},
        {"unknown coding", {0, 16, 0, 0, 5, 1, 0, 0, 9}},
        {"a byte repeated that is two", {0, 16, 0, 0, 1, 2, 0, 0, 9, 9}},
        {"a raw plane too short", {0, 16, 0, 0, 0, 1, 0, 0, 9}},
        {"no zstd frame", {0, 16, 0, 0, 2, 1, 0, 0, 9}},
        {"an empty zstd frame", {0, 16, 0, 0, 2, 0, 0, 0}},
        {"packed bits without a mask", {0, 16, 0, 0, 3, 1, 0, 0, 1}},
        {"packed bits that are too few", {0, 16, 0, 0, 3, 3, 0, 0, 1, 0, 9}},
        {"packed bits that are too many", {0, 16, 0, 0, 3, 5, 0, 0, 1, 0, 9, 9, 9}},
        {"a constant bit that varies", {0, 16, 0, 0, 3, 4, 0, 0, 1, 1, 9, 9}},
        {"centres without a frame", {0, 16, 0, 0, 4, 1, 0, 0, 9}},
        {"no centres", {0, 16, 0, 0, 4, 0, 0, 0}},
        {"the lower reserved bit", {0, 16, 0, 0x40, 1, 1, 0, 0, 9}},
        {"the upper reserved bit", {0, 16, 0, 0x80, 1, 1, 0, 0, 9}},
        {"rotated bytes", {0x04, 16, 0, 0, 1, 1, 0, 0, 9}},
        {"phase of a byte", {0x20, 16, 0, 0, 1, 1, 0, 0, 9}},
        {"phase beyond an element", {0x41, 16, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 9, 9, 9}},
        {"phase beyond the sub-block", {0xe3, 3, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 9, 9, 9}},
        {"a reference", {0x02, 16, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 9, 9}},
    };
    for (const auto& [what, bytes] : claims) {
        Bytes stored;
        for (const unsigned byte : frame) {
            stored.push_back(static_cast<std::byte>(byte));
        }
        for (const unsigned byte : bytes) {
            stored.push_back(static_cast<std::byte>(byte));
        }
        SCOPED_TRACE(what);
        expect_eio(stored, 16);
    }
    // The same frame without a lie.
    Bytes honest;
    for (const unsigned byte :
         {'C' + 0U, 'K' + 0U, 'P' + 0U, 'F' + 0U, 1U, 16U, 0U, 0U, 0U, 16U, 0U, 0U, 1U, 1U, 0U, 0U, 9U}) {
        honest.push_back(static_cast<std::byte>(byte));
    }
    Bytes back(16);
    ASSERT_TRUE(decode(honest, back));
    EXPECT_EQ(back, Bytes(16, std::byte{9}));
}

}  // namespace
}  // namespace ckptfs
