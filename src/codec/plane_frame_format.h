// SPDX-License-Identifier: Apache-2.0
// The bytes of a plane frame that are not planes, as ckptfs-format(5) fixes them: shared by encoder and decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "ckptfs/bytes.h"
#include "codec/plane_layout.h"

namespace ckptfs::plane_format {

// "CKPF". Not the magic of a zstd frame, of a skippable frame, or of one of zstd's older formats.
inline constexpr std::uint32_t kMagic = 0x46504b43;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kFrameHeader = 8;
inline constexpr std::size_t kSubBlockHeader = 4;
inline constexpr std::size_t kPlaneHeader = 4;
// What a reference sub-block has in addition: where the bytes are and how many exceptions there are, and each
// exception.
inline constexpr std::size_t kReferenceHeader = 12;
inline constexpr std::size_t kExceptionSize = 6;
inline constexpr std::uint32_t kReferenceBit = std::uint32_t{1} << 29;
// Limits of one frame, so that reading it never takes many others.
inline constexpr std::size_t kMaxReferences = 16;
inline constexpr std::size_t kMaxReferencedFrames = 4;

enum class Coding : std::uint8_t { kRaw = 0, kRepeatedByte = 1, kZstd = 2, kPackedBits = 3, kCentred = 4 };

// Bytes that share one centre in Coding::kCentred.
inline constexpr std::size_t kCentredSegment = 256;

// A packed word: one byte, and a number of 24 bits above it.
[[nodiscard]] constexpr std::uint32_t packed(std::uint32_t byte, std::size_t number) {
    return byte | static_cast<std::uint32_t>(number << 8);
}
[[nodiscard]] constexpr std::uint8_t packed_byte(std::uint32_t word) {
    return static_cast<std::uint8_t>(word);
}
[[nodiscard]] constexpr std::size_t packed_number(std::uint32_t word) {
    return word >> 8;
}

// A sub-block's header. Bits 0-1: the width's logarithm; 2-4: rotation; 5-7: phase; 8-28: size; 29: refers to bf16
// elsewhere in the file; 30-31: zero.
struct SubBlockHeader {
    PlaneLayout layout;
    std::size_t size = 0;
    bool reference = false;
    bool reserved = false;
};

[[nodiscard]] constexpr std::uint32_t header_word(const PlaneLayout& layout, std::size_t size) {
    std::uint32_t log_width = 0;
    while ((1U << log_width) < layout.width) {
        ++log_width;
    }
    return log_width | layout.rotation << 2 | layout.phase << 5 | static_cast<std::uint32_t>(size << 8);
}
[[nodiscard]] constexpr SubBlockHeader header_of(std::uint32_t word) {
    SubBlockHeader header;
    header.layout = {.width = 1U << (word & 3), .phase = (word >> 5) & 7, .rotation = (word >> 2) & 7};
    header.size = (word >> 8) & 0x1fffff;
    header.reference = (word >> 29 & 1) != 0;
    header.reserved = word >> 30 != 0;
    return header;
}

// How many bodies of planes a sub-block has.
[[nodiscard]] constexpr unsigned stored_planes(const SubBlockHeader& header) {
    return header.reference ? 2 : header.layout.width;
}
// Whether no sub-block can have this header, whatever follows.
[[nodiscard]] constexpr bool impossible(const SubBlockHeader& header) {
    const PlaneLayout& layout = header.layout;
    return header.reserved || header.size == 0 || layout.phase >= layout.width || layout.phase > header.size ||
           (layout.width == 1 && layout.rotation > 0) ||
           (header.reference && (layout.width != 4 || layout.rotation > 0));
}

// Takes bytes from the front of an untrusted frame.
class Reader {
public:
    explicit Reader(ByteSpan bytes) : bytes_(bytes) {}

    [[nodiscard]] bool take(std::size_t size, ByteSpan& taken) {
        if (size > bytes_.size()) {
            return false;
        }
        taken = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return true;
    }
    [[nodiscard]] bool skip(std::size_t size) {
        ByteSpan skipped;
        return take(size, skipped);
    }
    [[nodiscard]] bool take_word(std::uint32_t& word) {
        ByteSpan taken;
        if (!take(sizeof(word), taken)) {
            return false;
        }
        word = load_u32(taken.data());
        return true;
    }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }

private:
    ByteSpan bytes_;
};

}  // namespace ckptfs::plane_format
