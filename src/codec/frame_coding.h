// SPDX-License-Identifier: Apache-2.0
// One frame of a container: which coding its bytes get, and decoding by the frame's own header.
//
// Pure functions; each thread keeps memory of its own for them (some 4 MiB).
#pragma once

#include <cstdint>
#include <vector>

#include "ckptfs/codec.h"

namespace ckptfs {

class ReferenceIndex;

enum class CodingChoice : std::uint8_t {
    kRaw,
    // A zstd frame of FrameCoding::zstd_level, or raw.
    kZstd,
    // Byte planes, and whatever pays for what is not floats, or raw.
    kPlanes,
    // For when CPU time is scarce: raw, but where an eighth of the bytes or more are zeros, which cost more to send
    // than to find.
    kZerosOnly,
};

// Of a frame's bytes in the file.
enum class FrameChecksum : std::uint8_t {
    // The lower half, as the seekable format of the zstd project has it.
    kXxh64,
    // Takes half the time.
    kCrc32c,
};

struct FrameCoding {
    CodingChoice choice = CodingChoice::kZstd;
    int zstd_level = 3;
    FrameChecksum checksum = FrameChecksum::kXxh64;
};

// What zstd's command line takes. Negative levels turn Huffman coding off and save nothing on floats.
inline constexpr int kLowestZstdLevel = 1;
inline constexpr int kHighestZstdLevel = 19;

Result<EncodedFrame> encode_frame(const Payload& raw, MutableByteSpan output, const FrameCoding& coding);
// Of a frame at `offset` of a file of which `index` knows what stands before; only planes refer to that.
Result<EncodedFrame> encode_frame_in_file(const Payload& raw, std::uint64_t offset, ReferenceIndex& index,
                                          MutableByteSpan output, const FrameCoding& coding);
// Of a frame that begins at `offset` of its file: what decode_frame() takes besides (codec.h).
Result<std::vector<FileRange>> frame_references(const Payload& stored, std::uint64_t offset);
// `raw` holds what the frame must decode to. EIO where it does not, or not to bytes of this checksum.
Status decode_frame(const Payload& stored, const Payload& referenced, MutableByteSpan raw, FrameChecksum kind,
                    std::uint32_t checksum);

}  // namespace ckptfs
