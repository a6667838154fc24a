// SPDX-License-Identifier: Apache-2.0
#include "codec/frame_coding.h"

#include <memory>
#include <utility>

#include "base/digest.h"
#include "base/little_endian.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "codec/container.h"
#include "codec/plane_frame.h"
#include "codec/plane_frame_format.h"
#include "codec/raw_blocks.h"
#include "codec/zstd_frames.h"

namespace ckptfs {
namespace {

// What a thread reuses from frame to frame.
struct Workshop {
    ZstdCoder zstd;
    PlaneCoder planes;
    // Where the slices of one frame are gathered.
    std::unique_ptr<std::byte[]> gathered = std::make_unique<std::byte[]>(kMaxStoredFrame);
};

Workshop& workshop() {
    thread_local Workshop mine;
    return mine;
}

// The bytes in one piece; copied only where they are in several.
ByteSpan in_one_piece(const Payload& payload, Workshop& shop) {
    if (payload.slices().size() == 1) {
        return payload.slices()[0].bytes;
    }
    const MutableByteSpan memory(shop.gathered.get(), kMaxStoredFrame);
    return memory.first(payload.copy_to(0, memory));
}

std::uint32_t checksum_of(ByteSpan raw, FrameChecksum kind) {
    return kind == FrameChecksum::kXxh64 ? static_cast<std::uint32_t>(xxh64(raw)) : crc32c(raw);
}

// The bytes written; 0 where the frame is to be stored raw.
std::size_t shrink(ByteSpan raw, MutableByteSpan output, const FrameCoding& coding, Workshop& shop) {
    switch (coding.choice) {
        case CodingChoice::kRaw:
            return 0;
        case CodingChoice::kZstd:
            // What does not save one percent is not worth decoding.
            return shop.zstd.compress(raw, output.first(raw.size() - raw.size() / 100), coding.zstd_level);
        case CodingChoice::kFastPlanes:
            return shop.planes.encode(raw, output, PlaneEffort::kFast);
        case CodingChoice::kPlanes:
            return shop.planes.encode(raw, output, PlaneEffort::kFull);
    }
    return 0;
}

Status expand(ByteSpan stored, MutableByteSpan raw, Workshop& shop) {
    const std::uint32_t magic = stored.size() < sizeof(std::uint32_t) ? 0 : load_u32(stored.data());
    if (magic == plane_format::kMagic) {
        return shop.planes.decode(stored, raw);
    }
    if (magic != kZstdMagic) {
        return failure(EIO, "a coding that this version does not know; a newer ckptfs may have written it");
    }
    if (!shop.zstd.decompress(stored, raw)) {
        return failure(EIO, format("not a zstd frame of {} bytes", raw.size()));
    }
    return {};
}

}  // namespace

Result<EncodedFrame> encode_frame(const Payload& raw, MutableByteSpan output, const FrameCoding& coding) {
    if (raw.empty() || raw.size() > kFrameSize || output.size() < kMaxStoredFrame) {
        return failure(EINVAL, format("{} bytes are no frame", raw.size()));
    }
    Workshop& shop = workshop();
    const ByteSpan bytes = coding.choice == CodingChoice::kRaw && coding.checksum == FrameChecksum::kCrc32c
                               ? ByteSpan()
                               : in_one_piece(raw, shop);
    EncodedFrame frame;
    if (const std::size_t written = shrink(bytes, output, coding, shop); written > 0) {
        frame.record.stored_size = static_cast<std::uint32_t>(written);
        frame.record.checksum = checksum_of(bytes, coding.checksum);
        frame.crc32c = crc32c(output.first(written));
        return frame;
    }
    RawBlocks blocks = raw_blocks(raw);
    frame.record.stored_size = static_cast<std::uint32_t>(blocks.frame.size());
    frame.record.checksum =
        coding.checksum == FrameChecksum::kCrc32c ? blocks.raw_crc32c : checksum_of(bytes, coding.checksum);
    frame.crc32c = blocks.frame_crc32c;
    frame.stored = std::move(blocks.frame);
    return frame;
}

Status decode_frame(const Payload& stored, MutableByteSpan raw, FrameChecksum kind, std::uint32_t checksum) {
    if (stored.size() > kMaxStoredFrame) {
        return failure(EIO, format("a frame of {} bytes", stored.size()));
    }
    Workshop& shop = workshop();
    const ByteSpan bytes = in_one_piece(stored, shop);
    const Result<std::uint64_t> padding = leading_skippable(bytes);
    if (!padding) {
        return failure(padding.error());
    }
    if (Status expanded = expand(bytes.subspan(*padding), raw, shop); !expanded) {
        return expanded;
    }
    if (checksum_of(raw, kind) != checksum) {
        return failure(EIO, "the checksum differs");
    }
    return {};
}

}  // namespace ckptfs
