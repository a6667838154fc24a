// SPDX-License-Identifier: Apache-2.0
// One plane: a probe says what it is worth, and it becomes raw bytes, one repeated byte, or a zstd frame.
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
    // `out` has more than as many bytes as the input, and 8 over.
    // Bytes of one position in elements.
    CodedPlane encode_plane(ByteSpan plane, MutableByteSpan out);
    // The plane with the exponents, above so many bits of mantissas.
    CodedPlane encode_exponents(ByteSpan plane, unsigned mantissa_bits, MutableByteSpan out);
    // Bytes that are no elements.
    CodedPlane encode_opaque(ByteSpan bytes, MutableByteSpan out);
    // Where the plane's bytes lie: in `stored` itself, or in `scratch`, which has their size. Null where they are not
    // what the coding says.
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
