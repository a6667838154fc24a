// SPDX-License-Identifier: Apache-2.0
// Literal compression by request is an experimental parameter; in the shared library it has been there since 1.3.8.
#define ZSTD_STATIC_LINKING_ONLY
#include "codec/zstd_frames.h"

#include <zstd.h>

namespace ckptfs {
namespace {

void set_mode(ZSTD_CCtx* compressor, ZstdMode mode) {
    ZSTD_CCtx_reset(compressor, ZSTD_reset_session_and_parameters);
    if (mode == ZstdMode::kHuffmanOnly) {
        // The match finder takes steps so long that it finds nothing and costs nothing.
        ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, ZSTD_minCLevel());
        ZSTD_CCtx_setParameter(compressor, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
        ZSTD_CCtx_setParameter(compressor, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
    } else {
        ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, mode == ZstdMode::kLevel1 ? 1 : 3);
    }
}

}  // namespace

ZstdCoder::~ZstdCoder() {
    ZSTD_freeCCtx(compressor_);
    ZSTD_freeDCtx(decompressor_);
}

std::size_t ZstdCoder::compress(ByteSpan raw, MutableByteSpan out, ZstdMode mode) {
    if (compressor_ == nullptr) {
        compressor_ = ZSTD_createCCtx();
    }
    if (compressor_ == nullptr) {
        return 0;
    }
    set_mode(compressor_, mode);
    const std::size_t written = ZSTD_compress2(compressor_, out.data(), out.size(), raw.data(), raw.size());
    return ZSTD_isError(written) != 0 ? 0 : written;
}

bool ZstdCoder::decompress(ByteSpan stored, MutableByteSpan raw) {
    if (decompressor_ == nullptr) {
        decompressor_ = ZSTD_createDCtx();
    }
    if (decompressor_ == nullptr || ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
        return false;
    }
    return ZSTD_decompressDCtx(decompressor_, raw.data(), raw.size(), stored.data(), stored.size()) == raw.size();
}

}  // namespace ckptfs
