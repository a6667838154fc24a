// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/entropy.h"
#include "codec/plane_bits.h"

namespace ckptfs {
namespace {

using plane_format::Coding;

// Mantissas of trained weights have 7.97 to 8 bits a byte; coding them costs time and saves nothing.
constexpr double kIncompressibleBits = 7.90;
constexpr std::size_t kSampledSegments = 16;
constexpr std::size_t kSampledOfSegment = 128;
constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 64;
// Bits a byte by which codes have to beat packed bits, which are ten times as fast.
constexpr double kCodesGain = 0.1;
// Bits a byte that centres have to save in a sample; their own bytes cost 1/32 of a bit.
constexpr double kCentringGain = 0.06;

void count(ByteSpan bytes, ByteCounts& counts) {
    for (const std::byte byte : bytes) {
        ++counts[std::to_integer<std::size_t>(byte)];
    }
}

struct Sample {
    double bits = 0;
    // The bits in which not all sampled bytes are equal.
    std::uint8_t varying = 0;
};

Sample sample(ByteSpan bytes) {
    ByteCounts counts{};
    std::uint8_t varying = 0;
    const std::size_t step = std::max(bytes.size() / kSampleRuns, kSampleRun);
    for (std::size_t i = 0; i < bytes.size(); i += step) {
        const ByteSpan run = bytes.subspan(i, std::min(kSampleRun, bytes.size() - i));
        count(run, counts);
    }
    for (std::size_t byte = 0; byte < counts.size(); ++byte) {
        if (counts[byte] > 0) {
            varying |= static_cast<std::uint8_t>(byte ^ std::to_integer<std::size_t>(bytes[0]));
        }
    }
    return {bits_per_byte(counts), varying};
}

bool decode_packed(ByteSpan stored, MutableByteSpan plane) {
    if (stored.size() < 2) {
        return false;
    }
    const auto mask = std::to_integer<std::uint8_t>(stored[0]);
    const auto constant = std::to_integer<std::uint8_t>(stored[1]);
    if ((mask & constant) != 0 || stored.size() - 2 != packed_size(plane.size(), mask)) {
        return false;
    }
    unpack_bits(stored.subspan(2), mask, constant, plane);
    return true;
}

bool centring_pays(ByteSpan plane, unsigned step) {
    constexpr std::size_t kSegment = plane_format::kCentredSegment;
    if (plane.size() < kSegment * kSampledSegments) {
        return false;
    }
    ByteCounts plain{};
    ByteCounts centred{};
    std::array<std::byte, kSampledOfSegment> rest;
    // Each is moved by another distance, so that they are not all of rows that have something in common.
    const std::size_t places = plane.size() / kSampledSegments / kSegment;
    for (std::size_t i = 0; i < kSampledSegments; ++i) {
        const ByteSpan segment = plane.subspan((i * places + i * 37 % places) * kSegment, kSegment);
        count(segment.first(kSampledOfSegment), plain);
        subtract(segment.first(kSampledOfSegment), centre_of(segment, step), rest.data());
        count(ByteSpan(rest).first(kSampledOfSegment), centred);
    }
    return bits_per_byte(centred) + kCentringGain < bits_per_byte(plain);
}

}  // namespace

CodedPlane store_raw(ByteSpan bytes, MutableByteSpan out) {
    if (!bytes.empty()) {
        std::memcpy(out.data(), bytes.data(), bytes.size());
    }
    return {Coding::kRaw, bytes.size()};
}

CodedPlane store_repeated(ByteSpan bytes, MutableByteSpan out) {
    out[0] = bytes[0];
    return {Coding::kRepeatedByte, 1};
}

CodedPlane PlaneBlockCoder::encode_plane(ByteSpan plane, MutableByteSpan out) {
    if (plane.empty()) {
        return {};
    }
    const Sample sampled = sample(plane);
    if (sampled.bits > kIncompressibleBits) {
        return store_raw(plane, out);
    }
    if (sampled.bits + kCodesGain < std::popcount(sampled.varying)) {
        return encode_literals(plane, out);
    }
    const std::uint8_t mask = varying_bits(plane);
    if (mask == 0) {
        return store_repeated(plane, out);
    }
    const std::size_t packed = 2 + packed_size(plane.size(), mask);
    if (packed >= plane.size() || std::popcount(mask) > std::popcount(sampled.varying)) {
        return encode_literals(plane, out);
    }
    out[0] = std::byte{mask};
    out[1] = plane[0] & ~std::byte{mask};
    pack_bits(plane, mask, out.data() + 2);
    return {Coding::kPackedBits, packed};
}

CodedPlane PlaneBlockCoder::encode_exponents(ByteSpan plane, unsigned mantissa_bits, MutableByteSpan out) {
    const unsigned step = 1U << mantissa_bits;
    return centring_pays(plane, step) ? encode_centred(plane, step, out) : encode_plane(plane, out);
}

CodedPlane PlaneBlockCoder::encode_centred(ByteSpan plane, unsigned step, MutableByteSpan out) {
    constexpr std::size_t kSegment = plane_format::kCentredSegment;
    centred_.resize(std::max(centred_.size(), plane.size()));
    std::size_t segments = 0;
    for (std::size_t begin = 0; begin < plane.size(); begin += kSegment) {
        const ByteSpan segment = plane.subspan(begin, std::min(kSegment, plane.size() - begin));
        const std::byte centre = centre_of(segment, step);
        out[segments++] = centre;
        subtract(segment, centre, centred_.data() + begin);
    }
    const std::size_t written =
        literals_.write({centred_.data(), plane.size()}, out.subspan(segments, plane.size() - segments));
    return written == 0 ? encode_plane(plane, out) : CodedPlane{Coding::kCentred, segments + written};
}

CodedPlane PlaneBlockCoder::encode_opaque(ByteSpan bytes, MutableByteSpan out) {
    const Sample sampled = sample(bytes);
    if (sampled.bits > kIncompressibleBits) {
        return store_raw(bytes, out);
    }
    if (sampled.varying == 0 && varying_bits(bytes) == 0) {
        return store_repeated(bytes, out);
    }
    return encode_matches(3, bytes, out);
}

CodedPlane PlaneBlockCoder::encode_literals(ByteSpan bytes, MutableByteSpan out) {
    const std::size_t written = literals_.write(bytes, out);
    return written == 0 ? store_raw(bytes, out) : CodedPlane{Coding::kZstd, written};
}

CodedPlane PlaneBlockCoder::encode_matches(int level, ByteSpan bytes, MutableByteSpan out) {
    const std::size_t written = zstd_.compress(bytes, out, level);
    return written == 0 || written >= bytes.size() ? store_raw(bytes, out) : CodedPlane{Coding::kZstd, written};
}

const std::byte* PlaneBlockCoder::decode(Coding coding, ByteSpan stored, MutableByteSpan scratch) {
    switch (coding) {
        case Coding::kRaw:
            return stored.size() == scratch.size() ? stored.data() : nullptr;
        case Coding::kRepeatedByte:
            if (stored.size() != 1) {
                return nullptr;
            }
            std::memset(scratch.data(), std::to_integer<int>(stored[0]), scratch.size());
            return scratch.data();
        case Coding::kZstd:
            return zstd_.decompress(stored, scratch) ? scratch.data() : nullptr;
        case Coding::kPackedBits:
            return decode_packed(stored, scratch) ? scratch.data() : nullptr;
        case Coding::kCentred:
            return decode_centred(stored, scratch) ? scratch.data() : nullptr;
    }
    return nullptr;
}

bool PlaneBlockCoder::decode_centred(ByteSpan stored, MutableByteSpan plane) {
    constexpr std::size_t kSegment = plane_format::kCentredSegment;
    const std::size_t segments = (plane.size() + kSegment - 1) / kSegment;
    if (stored.size() < segments || !zstd_.decompress(stored.subspan(segments), plane)) {
        return false;
    }
    for (std::size_t i = 0; i < segments; ++i) {
        const std::size_t begin = i * kSegment;
        add_in_place(plane.subspan(begin, std::min(kSegment, plane.size() - begin)), stored[i]);
    }
    return true;
}

}  // namespace ckptfs
