// SPDX-License-Identifier: Apache-2.0
// Codes one plane: a sample says what it is worth, and it becomes raw bytes, one repeated byte, packed bits, or a zstd
// frame of its bytes or of centred bytes.
//
// A PlaneBlockCoder belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "ckptfs/bytes.h"
#include "codec/literal_frame.h"
#include "codec/plane_frame.h"
#include "codec/plane_frame_format.h"
#include "codec/zstd_frames.h"

namespace ckptfs {

struct CodedPlane {
    plane_format::Coding coding = plane_format::Coding::kRaw;
    std::size_t size = 0;
};

class PlaneBlockCoder {
public:
    // Encodes the bytes of one position in elements. In all functions that encode, `out` is more than 8 bytes larger
    // than the input.
    CodedPlane encode_plane(ByteSpan plane, MutableByteSpan out);
    // Encodes the plane with the exponents, which are above this many bits of mantissas.
    CodedPlane encode_exponents(ByteSpan plane, unsigned mantissa_bits, MutableByteSpan out);
    // Encodes bytes that are not elements.
    CodedPlane encode_opaque(ByteSpan bytes, MutableByteSpan out);
    // Returns where the plane's bytes are: in `stored` itself, or in `scratch`, which has their size. Null if `stored`
    // does not decode to that size.
    const std::byte* decode(plane_format::Coding coding, ByteSpan stored, MutableByteSpan scratch);

private:
    CodedPlane encode_literals(ByteSpan bytes, MutableByteSpan out);
    CodedPlane encode_matches(int level, ByteSpan bytes, MutableByteSpan out);
    CodedPlane encode_centred(ByteSpan plane, unsigned step, MutableByteSpan out);
    bool decode_centred(ByteSpan stored, MutableByteSpan plane);

    LiteralFrameWriter literals_;
    ZstdCoder zstd_;
    std::vector<std::byte> centred_;
};

[[nodiscard]] CodedPlane store_raw(ByteSpan bytes, MutableByteSpan out);
[[nodiscard]] CodedPlane store_repeated(ByteSpan bytes, MutableByteSpan out);

}  // namespace ckptfs
