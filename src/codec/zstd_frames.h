// SPDX-License-Identifier: Apache-2.0
// Standard zstd frames, as libzstd makes and reads them.
//
// A coder reuses the library's memory, and belongs to one thread at a time.
#pragma once

#include <cstddef>

#include "ckptfs/bytes.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ckptfs {

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

}  // namespace ckptfs
