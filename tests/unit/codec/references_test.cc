// SPDX-License-Identifier: Apache-2.0
// Frames whose floats follow from bf16 that stands earlier in the file.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "codec/bf16.h"
#include "codec/frame_coding.h"
#include "codec/frame_report.h"
#include "codec/plane_frame.h"
#include "codec/plane_frame_format.h"
#include "codec/reference_index.h"
#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

constexpr FrameCoding kPlanes{CodingChoice::kPlanes, 0, FrameChecksum::kCrc32c};

Bytes rounded(const Bytes& floats) {
    Bytes bf16(floats.size() / 2);
    std::vector<std::uint16_t> numbers(floats.size() / 4);
    round_to_bf16(floats.data(), numbers.size(), numbers.data());
    std::memcpy(bf16.data(), numbers.data(), bf16.size());
    return bf16;
}

struct StoredFrame {
    Bytes bytes;
    // What encoding left behind them.
    Bytes referenced;
    EncodedFrame frame;
    std::size_t size = 0;
};

// A file as a writer stores it.
struct StoredFile {
    std::vector<StoredFrame> frames;

    [[nodiscard]] std::size_t size() const {
        std::size_t sum = 0;
        for (const StoredFrame& frame : frames) {
            sum += frame.bytes.size();
        }
        return sum;
    }
    [[nodiscard]] std::size_t references() const {
        std::size_t sum = 0;
        for (const StoredFrame& frame : frames) {
            sum += frame.frame.references.size();
        }
        return sum;
    }
};

StoredFrame encode(ByteSpan raw, std::uint64_t offset, ReferenceIndex& index) {
    StoredFrame stored;
    stored.size = raw.size();
    Bytes output(kMaxStoredFrame);
    Payload payload;
    payload.append(Slice{nullptr, raw});
    stored.frame = encode_frame_in_file(payload, offset, index, output, kPlanes).value();
    if (stored.frame.stored) {
        stored.bytes.resize(stored.frame.stored->size());
        stored.frame.stored->copy_to(0, stored.bytes);
        return stored;
    }
    std::size_t referenced = 0;
    for (const FileRange& range : stored.frame.references) {
        referenced += range.size;
    }
    const auto end = output.begin() + static_cast<std::ptrdiff_t>(stored.frame.record.stored_size);
    stored.bytes.assign(output.begin(), end);
    stored.referenced.assign(end, end + static_cast<std::ptrdiff_t>(referenced));
    return stored;
}

StoredFile store(const Bytes& file, ReferenceIndex& index) {
    StoredFile stored;
    for (std::size_t offset = 0; offset < file.size(); offset += kFrameSize) {
        stored.frames.push_back(
            encode(ByteSpan(file).subspan(offset, std::min(kFrameSize, file.size() - offset)), offset, index));
    }
    return stored;
}

Payload payload_of(const Bytes& bytes) {
    Payload payload;
    payload.append(Slice{nullptr, bytes});
    return payload;
}

Bytes decode(const StoredFrame& stored, const Payload& referenced) {
    Bytes raw(stored.size);
    const Status decoded =
        decode_frame(payload_of(stored.bytes), referenced, raw, kPlanes.checksum, stored.frame.record.checksum);
    EXPECT_TRUE(decoded) << decoded.error().message;
    return decoded ? raw : Bytes();
}

// By what the frames say, and from the bytes that they were encoded with.
void expect_back(const Bytes& file, const StoredFile& stored) {
    std::size_t offset = 0;
    for (const StoredFrame& frame : stored.frames) {
        const auto references = frame_references(payload_of(frame.bytes), offset);
        ASSERT_TRUE(references) << references.error().message;
        ASSERT_EQ(*references, frame.frame.references);
        Payload referenced;
        for (const FileRange& range : *references) {
            // In pieces, as blocks of a cache are.
            const ByteSpan bytes = ByteSpan(file).subspan(range.offset, range.size);
            referenced.append(Slice{nullptr, bytes.first(range.size / 3)});
            referenced.append(Slice{nullptr, bytes.subspan(range.size / 3)});
            for (std::uint64_t at = range.offset / kFrameSize; at * kFrameSize < range.end(); ++at) {
                ASSERT_TRUE(stored.frames[at].frame.references.empty());
            }
        }
        const Bytes raw(file.begin() + static_cast<std::ptrdiff_t>(offset),
                        file.begin() + static_cast<std::ptrdiff_t>(offset + frame.size));
        ASSERT_TRUE(decode(frame, referenced) == raw) << offset;
        ASSERT_TRUE(decode(frame, payload_of(frame.referenced)) == raw) << offset;
        ASSERT_LE(frame.bytes.size() + frame.referenced.size(), kMaxStoredFrame);
        offset += frame.size;
    }
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(References, UpperHalvesAreLeftOutAtEveryPhase) {
    const Bytes floats = testing::fp32(5 * kMiB);
    for (const std::size_t before : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{1003}}) {
        for (const std::size_t between : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{131}}) {
            const Bytes file = testing::joined(
                {testing::text(before), rounded(floats), testing::random_bytes(between), floats, testing::text(70)});
            ReferenceIndex index(kMiB);
            const StoredFile stored = store(file, index);
            expect_back(file, stored);
            // bf16 at a third less, the lower halves as they are. Floats in the frame with the end of the bf16 are
            // stored whole, so that others may refer to that.
            const std::size_t expected = floats.size() / 2 * 7 / 10 + floats.size() / 2;
            EXPECT_LT(stored.size(), expected + kMiB / 3) << before << " " << between;
        }
    }
}

TEST(References, TensorsInAnotherOrderAndWithGapsAreFound) {
    std::vector<Bytes> tensors;
    for (const std::size_t size : {400'000U, 1'300'000U, 60'000U, 5'000U, 900'000U, 1'048'576U}) {
        tensors.push_back(testing::fp32(size / 4 * 4, tensors.size() + 1));
    }
    Bytes file = testing::text(1000);
    for (const Bytes& tensor : tensors) {
        file = testing::joined({file, rounded(tensor), testing::text(130)});
    }
    const std::size_t model = file.size();
    for (const std::size_t i : {4U, 0U, 1U, 5U, 3U, 2U}) {
        file = testing::joined({file, testing::text(70), tensors[i]});
    }
    ReferenceIndex index(kMiB);
    const StoredFile stored = store(file, index);
    expect_back(file, stored);
    EXPECT_GT(stored.references(), 4U);
    std::size_t referenced = 0;
    for (const StoredFrame& frame : stored.frames) {
        referenced += frame.referenced.size();
    }
    EXPECT_GT(referenced, (file.size() - model) / 2 * 80 / 100);
}

TEST(References, TiesAndNaNsAreExceptions) {
    Bytes floats = testing::fp32(2 * kMiB);
    std::size_t odd = 0;
    for (std::size_t i = 0; i < floats.size() / 4; i += 5003) {
        std::uint32_t bits = load_u32(floats.data() + 4 * i);
        bits = (bits & 0xffff0000) | 0x8000;
        if (i % 3 == 0) {
            bits = 0x7f800001 + static_cast<std::uint32_t>(i);
        }
        odd += i % 3 == 0 || (bits >> 16 & 1) != 0 ? 1 : 0;
        store_u32(floats.data() + 4 * i, bits);
    }
    ASSERT_GT(odd, 50U);
    const Bytes file = testing::joined({rounded(floats), floats});
    ReferenceIndex index(kMiB);
    const StoredFile stored = store(file, index);
    expect_back(file, stored);
    EXPECT_GE(stored.references(), 2U);
}

TEST(References, FloatsThatAreTiesEverywhereAreStoredAsTheyAre) {
    Bytes floats = testing::fp32(kMiB);
    for (std::size_t i = 0; i < floats.size(); i += 4) {
        store_u32(floats.data() + i, (load_u32(floats.data() + i) & 0xffff0000) | 0x8000);
    }
    const Bytes file = testing::joined({rounded(floats), rounded(floats), floats});
    ReferenceIndex index(kMiB);
    const StoredFile stored = store(file, index);
    expect_back(file, stored);
    EXPECT_EQ(stored.references(), 0U);
}

TEST(References, NothingIsFoundThatIsAStepBehind) {
    const Bytes floats = testing::fp32(2 * kMiB);
    Bytes later = floats;
    for (std::size_t i = 0; i < later.size(); i += 4 * 300) {
        later[i + 2] ^= std::byte{1};
    }
    const Bytes file = testing::joined({rounded(floats), later});
    ReferenceIndex index(kMiB);
    const StoredFile stored = store(file, index);
    expect_back(file, stored);
    EXPECT_EQ(stored.references(), 0U);
}

TEST(References, FramesInAnyOrderReferToWhatIsBeforeThemOnly) {
    const Bytes floats = testing::fp32(2 * kMiB);
    // The floats come first in the file.
    const Bytes file = testing::joined({floats, rounded(floats), floats});
    ReferenceIndex index(kMiB);
    std::vector<StoredFrame> frames(5);
    for (const std::size_t i : {2U, 0U, 4U, 1U, 3U}) {
        frames[i] = encode(ByteSpan(file).subspan(i * kMiB, kMiB), i * kMiB, index);
    }
    EXPECT_TRUE(frames[0].frame.references.empty());
    EXPECT_TRUE(frames[1].frame.references.empty());
    EXPECT_FALSE(frames[4].frame.references.empty());
    expect_back(file, StoredFile{std::move(frames)});
}

TEST(References, WhatIsForgottenIsNotReferredTo) {
    const Bytes floats = testing::fp32(2 * kMiB);
    const Bytes bf16 = rounded(floats);
    for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{300'000}}) {
        ReferenceIndex index(kMiB);
        static_cast<void>(encode(bf16, 0, index));
        index.forget(begin, begin == 0 ? UINT64_MAX : begin + 1);
        const StoredFrame first = encode(ByteSpan(floats).first(kMiB), kMiB, index);
        for (const FileRange& range : first.frame.references) {
            EXPECT_TRUE(range.end() <= begin || range.offset > begin);
        }
        EXPECT_EQ(first.frame.references.size(), begin == 0 ? 0U : 2U);
    }
}

TEST(References, LittleMemoryMakesLargerPieces) {
    const Bytes floats = testing::fp32(16 * kMiB);
    const Bytes file = testing::joined({rounded(floats), testing::random_bytes(4099), floats});
    std::size_t last = 0;
    // Pieces of 8, 16, 32 KiB.
    for (const std::uint64_t memory : {std::uint64_t{1} << 20, std::uint64_t{32} << 10, std::uint64_t{16} << 10}) {
        ReferenceIndex index(memory);
        const StoredFile stored = store(file, index);
        expect_back(file, stored);
        EXPECT_GT(stored.references(), 12U) << memory;
        EXPECT_GT(stored.size(), last);
        EXPECT_LT(stored.size(), file.size() * 80 / 100) << memory;
        last = stored.size();
    }
}

TEST(References, AReportCountsThem) {
    const Bytes floats = testing::fp32(kMiB);
    ReferenceIndex index(kMiB);
    static_cast<void>(encode(rounded(floats), 0, index));
    const StoredFrame stored = encode(floats, kMiB, index);
    const FrameReport report = report_frame(stored.bytes).value();
    ASSERT_EQ(report.references.size(), 1U);
    EXPECT_GT(report.references[0].size, kMiB / 2 * 95 / 100);
    EXPECT_LT(report.references[0].stored_size, 100U);
    std::size_t planes = 0;
    for (const StoredPlane& plane : report.planes) {
        planes += plane.size;
    }
    EXPECT_LE(planes + report.references[0].size, kMiB);
}

// --- what others may have written

// A frame of one reference sub-block of four floats.
Bytes small_frame(std::uint64_t offset, std::uint32_t exceptions = 0) {
    namespace format = plane_format;
    Bytes frame(format::kFrameHeader + format::kSubBlockHeader + format::kReferenceHeader + 2 * format::kPlaneHeader +
                8 + format::kExceptionSize * exceptions);
    store_u32(frame.data(), format::kMagic);
    store_u32(frame.data() + 4, format::packed(format::kVersion, 16));
    store_u32(frame.data() + 8, format::header_word({4, 0, 0}, 16) | format::kReferenceBit);
    store_u64(frame.data() + 12, offset);
    store_u32(frame.data() + 20, exceptions);
    store_u32(frame.data() + 24, format::packed(0, 4));
    store_u32(frame.data() + 28, format::packed(0, 4));
    return frame;
}

Status decode_small(const Bytes& frame, std::size_t referenced = 8) {
    Bytes raw(16);
    const Bytes bf16(referenced);
    return decode_frame(payload_of(frame), payload_of(bf16), raw, FrameChecksum::kCrc32c, 0);
}

void expect_refused(const Result<std::vector<FileRange>>& references) {
    ASSERT_FALSE(references);
    EXPECT_EQ(references.error().errno_value, EIO);
    EXPECT_FALSE(references.error().message.empty());
}

TEST(References, BytesThatAreNotBeforeTheFrameAreRefused) {
    EXPECT_TRUE(frame_references(payload_of(small_frame(kMiB - 8)), kMiB));
    for (const std::uint64_t offset :
         {kMiB - 7, kMiB, kMiB + 5, 100 * kMiB, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8, std::uint64_t{1} << 63}) {
        expect_refused(frame_references(payload_of(small_frame(offset)), kMiB));
    }
    expect_refused(frame_references(payload_of(small_frame(0)), 0));
}

TEST(References, AreNotAsManyAsOneLikes) {
    Bytes many = small_frame(0);
    const Bytes one(many.begin() + 8, many.end());
    for (std::uint32_t count = 2; count <= 17; ++count) {
        many = testing::joined({many, one});
        store_u32(many.data() + 4, plane_format::packed(plane_format::kVersion, 16 * count));
        EXPECT_EQ(frame_references(payload_of(many), kMiB).has_value(), count <= 16) << count;
    }
    Bytes far = small_frame(0);
    for (std::uint32_t count = 2; count <= 5; ++count) {
        const Bytes next = small_frame(count * kMiB);
        far = testing::joined({far, Bytes(next.begin() + 8, next.end())});
        store_u32(far.data() + 4, plane_format::packed(plane_format::kVersion, 16 * count));
        EXPECT_EQ(frame_references(payload_of(far), 100 * kMiB).has_value(), count <= 4) << count;
    }
}

TEST(References, WithoutTheBytesThereIsNoFrame) {
    EXPECT_EQ(decode_small(small_frame(0)).error().message, "the checksum differs");
    for (const std::size_t referenced : {0U, 7U, 6U}) {
        const Status decoded = decode_small(small_frame(0), referenced);
        ASSERT_FALSE(decoded);
        EXPECT_NE(decoded.error().message, "the checksum differs") << referenced;
    }
}

TEST(References, ExceptionsThatCannotBeAreRefused) {
    Bytes frame = small_frame(0, 2);
    std::byte* const exceptions = frame.data() + frame.size() - 2 * plane_format::kExceptionSize;
    const auto set = [&](std::uint32_t first, std::uint32_t second) {
        store_u32(exceptions, first);
        store_u32(exceptions + plane_format::kExceptionSize, second);
        return decode_small(frame).error().message == "the checksum differs";
    };
    EXPECT_TRUE(set(0, 1));
    EXPECT_TRUE(set(2, 3));
    EXPECT_FALSE(set(1, 1));
    EXPECT_FALSE(set(2, 1));
    EXPECT_FALSE(set(3, 4));
    EXPECT_FALSE(set(UINT32_MAX, UINT32_MAX));
    store_u32(frame.data() + 20, UINT32_MAX);
    EXPECT_FALSE(set(0, 1));
    expect_refused(frame_references(payload_of(frame), kMiB));
}

TEST(References, EveryTruncationAndFlippedBitIsHarmless) {
    Bytes frame = small_frame(0, 1);
    for (std::size_t size = 0; size < frame.size(); ++size) {
        const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_FALSE(decode_small(cut));
        EXPECT_FALSE(size >= 4 && frame_references(payload_of(cut), kMiB)) << size;
    }
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
        frame[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_FALSE(decode_small(frame));
        static_cast<void>(frame_references(payload_of(frame), kMiB));
        frame[bit / 8] ^= std::byte{1} << (bit % 8);
    }
}

}  // namespace
}  // namespace ckptfs
