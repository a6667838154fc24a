// SPDX-License-Identifier: Apache-2.0
// The bytes of a plane frame that are no plane: what ckptfs-format(5) fixes, once for encoder and decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ckptfs/bytes.h"
#include "codec/plane_layout.h"

namespace ckptfs::plane_format {

// "CKPF". Not the magic of a zstd frame, of a skippable frame, or of one of zstd's older formats.
inline constexpr std::uint32_t kMagic = 0x46504b43;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kFrameHeader = 8;
inline constexpr std::size_t kSubBlockHeader = 4;
inline constexpr std::size_t kPlaneHeader = 4;

enum class Coding : std::uint8_t { kRaw = 0, kRepeatedByte = 1, kZstd = 2 };

// One byte, and a number of 24 bits above it.
[[nodiscard]] constexpr std::uint32_t packed(std::uint32_t byte, std::size_t number) {
    return byte | static_cast<std::uint32_t>(number << 8);
}
[[nodiscard]] constexpr std::uint8_t packed_byte(std::uint32_t word) {
    return static_cast<std::uint8_t>(word);
}
[[nodiscard]] constexpr std::size_t packed_number(std::uint32_t word) {
    return word >> 8;
}

// Bits 0-1: the width's logarithm; 2: rotated; 3: refers to bf16 elsewhere in the file; 4-6: phase; 7: zero.
inline constexpr unsigned kRotated = 1U << 2;
inline constexpr unsigned kReference = 1U << 3;
inline constexpr unsigned kReserved = 1U << 7;

[[nodiscard]] constexpr std::uint8_t layout_byte(const PlaneLayout& layout) {
    unsigned log_width = 0;
    while ((1U << log_width) < layout.width) {
        ++log_width;
    }
    return static_cast<std::uint8_t>(log_width | (layout.rotate ? kRotated : 0) | layout.phase << 4);
}
[[nodiscard]] constexpr PlaneLayout layout_of(std::uint8_t byte) {
    return {.width = 1U << (byte & 3), .phase = (byte >> 4) & 7U, .rotate = (byte & kRotated) != 0};
}

// Little endian, as the machines are that this runs on.
inline void store_word(std::byte* target, std::uint32_t word) {
    std::memcpy(target, &word, sizeof(word));
}
[[nodiscard]] inline std::uint32_t load_word(const std::byte* source) {
    std::uint32_t word = 0;
    std::memcpy(&word, source, sizeof(word));
    return word;
}

}  // namespace ckptfs::plane_format
