// SPDX-License-Identifier: Apache-2.0
#include "codec/zstd_frames.h"

#include <zstd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/digest.h"
#include "base/little_endian.h"

namespace ckptfs {
namespace {

// Block_Maximum_Size (RFC 8878, 3.1.1.2.4).
constexpr std::uint64_t kBlockSize = std::uint64_t{128} << 10;
// Single segment, four bytes of content size (RFC 8878, 3.1.1.1.1).
constexpr char kFrameDescriptor = static_cast<char>(0xA0);
constexpr std::size_t kFrameHeader = 9;

}  // namespace

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
    // libzstd also accepts skippable frames and those of its first versions, which ckptfs never writes.
    if (decompressor_ == nullptr || stored.size() < sizeof(std::uint32_t) ||
        load_u32(stored.data()) != ZSTD_MAGICNUMBER ||
        ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
        return false;
    }
    return ZSTD_decompressDCtx(decompressor_, raw.data(), raw.size(), stored.data(), stored.size()) == raw.size();
}

RawBlocks raw_blocks(const Payload& raw) {
    const std::uint64_t size = raw.size();
    std::string header(kFrameHeader, '\0');
    store_u32(header.data(), kZstdMagic);
    header[4] = kFrameDescriptor;
    store_u32(header.data() + 5, static_cast<std::uint32_t>(size));
    RawBlocks blocks;
    for (std::uint64_t offset = 0; offset < size; offset += kBlockSize) {
        const std::uint64_t length = std::min(kBlockSize, size - offset);
        // Block_Header (3.1.1.2): last block, type Raw_Block which is 0, size; three bytes.
        const auto block = static_cast<std::uint32_t>(length << 3U | (offset + length == size ? 1U : 0U));
        for (unsigned shift = 0; shift < 24; shift += 8) {
            header.push_back(static_cast<char>(block >> shift & 0xFFU));
        }
        Payload bytes = raw.subrange(offset, length);
        const std::uint32_t crc = crc32c(bytes);
        blocks.raw_crc32c = crc32c_combine(blocks.raw_crc32c, crc, length);
        blocks.frame_crc32c = crc32c_combine(crc32c(as_bytes(header), blocks.frame_crc32c), crc, length);
        blocks.frame.append(Payload::from_string(std::exchange(header, {})));
        blocks.frame.append(std::move(bytes));
    }
    return blocks;
}

}  // namespace ckptfs
