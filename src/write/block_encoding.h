// SPDX-License-Identifier: Apache-2.0
// Encodes again what changed of a part's frames. A container holds one frame for every kFrameSize bytes of the file;
// until a part is sent, it may hold several pieces of such a block, some encoded, some not.
//
// Pure; for an executor thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/codec.h"
#include "ckptfs/status.h"
#include "write/part.h"

namespace ckptfs {

// EIO if bytes that were staged are not what they were.
Status verify_loaded(std::vector<PartFrame>& frames);

// Encodes stale frames again, by an identity encoder.
Status refresh_plain(std::vector<PartFrame>& frames, const FrameEncoder& encoder);

// For other encoders: how many blocks would have to be encoded if the bytes [offset, end) of the file were replaced.
[[nodiscard]] std::uint64_t blocks_to_encode(const std::vector<PartFrame>& frames, std::uint64_t offset,
                                             std::uint64_t end);
// Encodes the blocks that have to be encoded. `buffers`: one for each of them, and one more.
Status encode_blocks(std::vector<PartFrame>& frames, const FrameEncoder& encoder, std::vector<Buffer> buffers);

// Puts padding before frames until they make `least` bytes, as far as a frame may grow.
void pad_frames(std::vector<PartFrame>& frames, const FrameEncoder& encoder, std::uint64_t least);

// Makes `frame` what encode() made of all of its bytes; `output` is what encode() wrote.
void take_encoded(PartFrame& frame, const FrameEncoder& encoder, EncodedFrame encoded, Payload output);

}  // namespace ckptfs
