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
    // Byte planes for floats, whatever pays for other bytes, or raw.
    kPlanes,
    // For when CPU time is scarce: raw, or a zstd frame if an eighth of the bytes or more are zeros, which cost more to
    // send than to find.
    kZerosOnly,
};

// The checksum of a frame's bytes in the file.
enum class FrameChecksum : std::uint8_t {
    // The lower half of XXH64, as the seekable format of the zstd project has it.
    kXxh64,
    // Takes half the time.
    kCrc32c,
};

struct FrameCoding {
    CodingChoice choice = CodingChoice::kZstd;
    int zstd_level = 3;
    FrameChecksum checksum = FrameChecksum::kXxh64;
};

// The levels that zstd's command line takes. Negative levels turn Huffman coding off and save nothing on floats.
inline constexpr int kLowestZstdLevel = 1;
inline constexpr int kHighestZstdLevel = 19;

Result<EncodedFrame> encode_frame(const Payload& raw, MutableByteSpan output, const FrameCoding& coding);
// As encode_frame(), for a frame at `offset` of a file. `index` knows what is before the frame; only planes refer to
// it.
Result<EncodedFrame> encode_frame_in_file(const Payload& raw, std::uint64_t offset, ReferenceIndex& index,
                                          MutableByteSpan output, const FrameCoding& coding);
// The earlier bytes of the file that decode_frame() needs for a frame that begins at `offset` (codec.h).
Result<std::vector<FileRange>> frame_references(const Payload& stored, std::uint64_t offset);
// `raw` has the size that the frame must decode to. EIO if it decodes to another size, or to bytes of another checksum.
Status decode_frame(const Payload& stored, const Payload& referenced, MutableByteSpan raw, FrameChecksum kind,
                    std::uint32_t checksum);

}  // namespace ckptfs
