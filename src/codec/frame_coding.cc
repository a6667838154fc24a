// SPDX-License-Identifier: Apache-2.0
#include "codec/frame_coding.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/digest.h"
#include "base/little_endian.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "codec/container.h"
#include "codec/plane_frame.h"
#include "codec/plane_frame_format.h"
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

// The frame without the padding in front of it.
Result<ByteSpan> frame_in(const Payload& stored, Workshop& shop) {
    if (stored.size() > kMaxStoredFrame) {
        return failure(EIO, format("a frame of {} bytes", stored.size()));
    }
    const ByteSpan bytes = in_one_piece(stored, shop);
    return leading_skippable(bytes).map([bytes](std::uint64_t padding) { return bytes.subspan(padding); });
}

std::uint32_t checksum_of(ByteSpan raw, FrameChecksum kind) {
    return kind == FrameChecksum::kXxh64 ? static_cast<std::uint32_t>(xxh64(raw)) : crc32c(raw);
}

// Where a frame is, and what is known of the file before it.
struct Place {
    std::uint64_t offset = 0;
    ReferenceIndex* index = nullptr;
};

PlaneCoder::Encoded encode_planes(ByteSpan raw, const Place& place, MutableByteSpan output, PlaneCoder& planes) {
    if (place.index != nullptr) {
        return planes.encode_in_file(raw, place.offset, *place.index, output);
    }
    return {planes.encode(raw, output), {}};
}

// Checks one cache line in each step of a page less one line, so that no pattern of the file hides anything: 1.6 % of
// the bytes, which are read for their checksum anyway.
bool has_many_zeros(const Payload& raw) {
    constexpr std::size_t kLine = 64;
    constexpr std::size_t kStep = 4096 - kLine;
    constexpr std::size_t kEnough = 8;
    constexpr std::array<std::byte, kLine> kZeros{};
    std::size_t looked_at = 0;
    std::size_t zeros = 0;
    for (const Slice& slice : raw.slices()) {
        for (std::size_t at = 0; at + kLine <= slice.bytes.size(); at += kStep) {
            ++looked_at;
            zeros += std::memcmp(slice.bytes.data() + at, kZeros.data(), kLine) == 0 ? 1 : 0;
        }
    }
    return zeros > 0 && zeros * kEnough >= looked_at;
}

// The size is 0 if the frame is to be stored raw.
PlaneCoder::Encoded shrink(ByteSpan raw, const Place& place, MutableByteSpan output, const FrameCoding& coding,
                           Workshop& shop) {
    switch (coding.choice) {
        case CodingChoice::kRaw:
            return {};
        case CodingChoice::kZstd:
            // What does not save one percent is not worth decoding.
            return {shop.zstd.compress(raw, output.first(raw.size() - raw.size() / 100), coding.zstd_level), {}};
        case CodingChoice::kPlanes:
            return encode_planes(raw, place, output, shop.planes);
        case CodingChoice::kZerosOnly:
            return {shop.zstd.compress(raw, output.first(raw.size() - raw.size() / 100), kLowestZstdLevel), {}};
    }
    return {};
}

std::uint32_t magic_of(ByteSpan stored) {
    return stored.size() < sizeof(std::uint32_t) ? 0 : load_u32(stored.data());
}

Status expand(ByteSpan stored, const Payload& referenced, MutableByteSpan raw, Workshop& shop) {
    const std::uint32_t magic = magic_of(stored);
    if (magic == plane_format::kMagic) {
        return shop.planes.decode(stored, referenced, raw);
    }
    if (magic != kZstdMagic) {
        return failure(EIO, "a coding that this version does not know; a newer ckptfs may have written it");
    }
    if (!shop.zstd.decompress(stored, raw)) {
        return failure(EIO, format("not a zstd frame of {} bytes", raw.size()));
    }
    return {};
}

Result<EncodedFrame> encode_at(const Payload& raw, const Place& place, MutableByteSpan output, FrameCoding coding) {
    if (raw.empty() || raw.size() > kFrameSize || output.size() < kMaxStoredFrame) {
        return failure(EINVAL, format("invalid frame size of {} bytes", raw.size()));
    }
    if (coding.choice == CodingChoice::kZerosOnly && !has_many_zeros(raw)) {
        coding.choice = CodingChoice::kRaw;
    }
    Workshop& shop = workshop();
    const ByteSpan bytes = coding.choice == CodingChoice::kRaw && coding.checksum == FrameChecksum::kCrc32c
                               ? ByteSpan()
                               : in_one_piece(raw, shop);
    EncodedFrame frame;
    if (PlaneCoder::Encoded encoded = shrink(bytes, place, output, coding, shop); encoded.size > 0) {
        frame.record.stored_size = static_cast<std::uint32_t>(encoded.size);
        frame.record.checksum = checksum_of(bytes, coding.checksum);
        frame.crc32c = crc32c(output.first(encoded.size));
        frame.references = std::move(encoded.references);
        frame.record.may_refer = !frame.references.empty();
        return frame;
    }
    RawBlocks blocks = raw_blocks(raw);
    frame.record.stored_size = static_cast<std::uint32_t>(blocks.frame.size());
    frame.record.may_refer = false;
    frame.record.checksum =
        coding.checksum == FrameChecksum::kCrc32c ? blocks.raw_crc32c : checksum_of(bytes, coding.checksum);
    frame.crc32c = blocks.frame_crc32c;
    frame.stored = std::move(blocks.frame);
    return frame;
}

}  // namespace

Result<EncodedFrame> encode_frame(const Payload& raw, MutableByteSpan output, const FrameCoding& coding) {
    return encode_at(raw, {}, output, coding);
}

Result<EncodedFrame> encode_frame_in_file(const Payload& raw, std::uint64_t offset, ReferenceIndex& index,
                                          MutableByteSpan output, const FrameCoding& coding) {
    return encode_at(raw, {offset, &index}, output, coding);
}

Result<std::vector<FileRange>> frame_references(const Payload& stored, std::uint64_t offset) {
    const Result<ByteSpan> frame = frame_in(stored, workshop());
    if (!frame) {
        return failure(frame.error());
    }
    if (magic_of(*frame) != plane_format::kMagic) {
        return std::vector<FileRange>();
    }
    return plane_references(*frame, offset);
}

Status decode_frame(const Payload& stored, const Payload& referenced, MutableByteSpan raw, FrameChecksum kind,
                    std::uint32_t checksum) {
    Workshop& shop = workshop();
    const Result<ByteSpan> frame = frame_in(stored, shop);
    if (!frame) {
        return failure(frame.error());
    }
    if (Status expanded = expand(*frame, referenced, raw, shop); !expanded) {
        return expanded;
    }
    if (checksum_of(raw, kind) != checksum) {
        return failure(EIO, "the checksum differs");
    }
    return {};
}

}  // namespace ckptfs
