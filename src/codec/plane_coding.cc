// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_coding.h"

#include <cstring>

#include "codec/entropy.h"

namespace ckptfs {
namespace {

using plane_format::Coding;

// Mantissas of trained weights have 7.97 to 8 bits a byte; coding them costs time and saves nothing.
constexpr double kIncompressibleBits = 7.90;
constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 128;

double sampled_bits(ByteSpan bytes) {
    ByteCounts counts{};
    const auto count = [&](ByteSpan run) {
        for (const std::byte byte : run) {
            ++counts[std::to_integer<std::size_t>(byte)];
        }
    };
    const std::size_t step = bytes.size() / kSampleRuns;
    if (step <= kSampleRun) {
        count(bytes);
    } else {
        for (std::size_t i = 0; i < kSampleRuns; ++i) {
            count(bytes.subspan(i * step, kSampleRun));
        }
    }
    return bits_per_byte(counts);
}

bool is_constant(ByteSpan bytes) {
    const std::size_t probe = std::min<std::size_t>(bytes.size(), 64);
    return std::memcmp(bytes.data(), bytes.data() + 1, probe - 1) == 0 &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
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

CodedPlane PlaneBlockCoder::encode_plane(ByteSpan plane, MutableByteSpan out, PlaneEffort effort) {
    if (plane.empty()) {
        return {};
    }
    if (is_constant(plane)) {
        return store_repeated(plane, out);
    }
    if (sampled_bits(plane) > kIncompressibleBits) {
        return store_raw(plane, out);
    }
    static_cast<void>(effort);
    return encode_with(ZstdMode::kHuffmanOnly, plane, out);
}

CodedPlane PlaneBlockCoder::encode_opaque(ByteSpan bytes, MutableByteSpan out, PlaneEffort effort) {
    if (is_constant(bytes)) {
        return store_repeated(bytes, out);
    }
    if (sampled_bits(bytes) > kIncompressibleBits) {
        return store_raw(bytes, out);
    }
    return encode_with(effort == PlaneEffort::kFull ? ZstdMode::kLevel3 : ZstdMode::kHuffmanOnly, bytes, out);
}

CodedPlane PlaneBlockCoder::encode_with(ZstdMode mode, ByteSpan bytes, MutableByteSpan out) {
    const std::size_t written = zstd_.compress(bytes, out, mode);
    if (written == 0 || written >= bytes.size()) {
        return store_raw(bytes, out);
    }
    return {Coding::kZstd, written};
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
    }
    return nullptr;
}

}  // namespace ckptfs
