// SPDX-License-Identifier: Apache-2.0
#include "codec/zstd_frames.h"

#include <zstd.h>

#include "base/little_endian.h"

namespace ckptfs {

ZstdCoder::~ZstdCoder() {
    ZSTD_freeCCtx(compressor_);
    ZSTD_freeDCtx(decompressor_);
}

std::size_t ZstdCoder::compress(ByteSpan raw, MutableByteSpan out, int level) {
    if (compressor_ == nullptr) {
        compressor_ = ZSTD_createCCtx();
    }
    if (compressor_ == nullptr) {
        return 0;
    }
    const std::size_t written = ZSTD_compressCCtx(compressor_, out.data(), out.size(), raw.data(), raw.size(), level);
    return ZSTD_isError(written) != 0 ? 0 : written;
}

bool ZstdCoder::decompress(ByteSpan stored, MutableByteSpan raw) {
    if (decompressor_ == nullptr) {
        decompressor_ = ZSTD_createDCtx();
    }
    // libzstd takes skippable frames and those of its first versions as well, which ckptfs never writes.
    if (decompressor_ == nullptr || stored.size() < sizeof(std::uint32_t) ||
        load_u32(stored.data()) != ZSTD_MAGICNUMBER ||
        ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
        return false;
    }
    return ZSTD_decompressDCtx(decompressor_, raw.data(), raw.size(), stored.data(), stored.size()) == raw.size();
}

}  // namespace ckptfs
