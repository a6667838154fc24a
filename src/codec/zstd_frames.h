// SPDX-License-Identifier: Apache-2.0
// Standard zstd frames (RFC 8878): as libzstd makes and reads them, and of bytes that do not shrink.
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

    // One frame with its content size and without a checksum. The bytes written, or 0 where `out` is too small.
    std::size_t compress(ByteSpan raw, MutableByteSpan out, int level);
    // False where `stored` is anything but one frame that decodes to raw.size() bytes.
    bool decompress(ByteSpan stored, MutableByteSpan raw);

private:
    // Made when they are first needed; null before that, and where there was no memory.
    ZSTD_CCtx_s* compressor_ = nullptr;
    ZSTD_DCtx_s* decompressor_ = nullptr;
};

// Bytes that do not shrink, as a frame that every zstd library decodes.
struct RawBlocks {
    // Headers between slices of the bytes, which are not copied. 1 MiB grows by 33 bytes.
    Payload frame;
    std::uint32_t frame_crc32c = 0;
    // Of the bytes themselves: looking at them once is enough for both.
    std::uint32_t raw_crc32c = 0;
};
[[nodiscard]] RawBlocks raw_blocks(const Payload& raw);

}  // namespace ckptfs
