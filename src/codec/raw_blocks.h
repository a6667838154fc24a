// SPDX-License-Identifier: Apache-2.0
// Bytes that do not shrink, as a frame that every zstd library decodes (RFC 8878). Pure.
#pragma once

#include <cstdint>

#include "ckptfs/bytes.h"

namespace ckptfs {

// RFC 8878, 3.1.1.
inline constexpr std::uint32_t kZstdMagic = 0xFD2FB528;

struct RawBlocks {
    // Headers between slices of the bytes, which are not copied. 1 MiB grows by 33 bytes.
    Payload frame;
    std::uint32_t frame_crc32c = 0;
    // Of the bytes themselves: looking at them once is enough for both.
    std::uint32_t raw_crc32c = 0;
};
[[nodiscard]] RawBlocks raw_blocks(const Payload& raw);

}  // namespace ckptfs
