// SPDX-License-Identifier: Apache-2.0
// Standard zstd frames (RFC 8878): those that libzstd makes and reads, and those of bytes that do not shrink.
//
// A coder reuses the library's memory, and belongs to one thread at a time. raw_blocks() is pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ckptfs/bytes.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ckptfs {

// RFC 8878, 3.1.1.
inline constexpr std::uint32_t kZstdMagic = 0xFD2FB528;

class ZstdCoder {
public:
    ZstdCoder() = default;
    ~ZstdCoder();
    ZstdCoder(const ZstdCoder&) = delete;
    ZstdCoder& operator=(const ZstdCoder&) = delete;

    // Writes one frame with its content size and without a checksum. Returns the bytes written, or 0 if `out` or memory
    // is too small.
    std::size_t compress(ByteSpan raw, MutableByteSpan out, int level);
    // False unless `stored` is one frame that decodes to raw.size() bytes.
    bool decompress(ByteSpan stored, MutableByteSpan raw);

private:
    // Made when they are first needed; null before that, and if there was no memory.
    ZSTD_CCtx_s* compressor_ = nullptr;
    ZSTD_DCtx_s* decompressor_ = nullptr;
};

// Bytes that do not shrink, as a frame that every zstd library decodes.
struct RawBlocks {
    // Headers between slices of the bytes, which are not copied. 1 MiB grows by 33 bytes.
    Payload frame;
    std::uint32_t frame_crc32c = 0;
    // The checksum of the bytes themselves: one pass over them is enough for both.
    std::uint32_t raw_crc32c = 0;
};
[[nodiscard]] RawBlocks raw_blocks(const Payload& raw);

}  // namespace ckptfs
