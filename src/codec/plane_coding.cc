// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_coding.h"

#include <cstring>

namespace ckptfs {
namespace {

using plane_format::Coding;

bool is_constant(ByteSpan bytes) {
    const std::size_t probe = std::min<std::size_t>(bytes.size(), 64);
    return std::memcmp(bytes.data(), bytes.data() + 1, probe - 1) == 0 &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

CodedPlane store_raw(ByteSpan bytes, MutableByteSpan out) {
    if (!bytes.empty()) {
        std::memcpy(out.data(), bytes.data(), bytes.size());
    }
    return {Coding::kRaw, bytes.size()};
}

CodedPlane store_repeated(ByteSpan bytes, MutableByteSpan out) {
    out[0] = bytes[0];
    return {Coding::kRepeatedByte, 1};
}

CodedPlane PlaneBlockCoder::encode_plane(ByteSpan plane, MutableByteSpan out, PlaneEffort effort) {
    if (plane.empty()) {
        return {};
    }
    if (is_constant(plane)) {
        return store_repeated(plane, out);
    }
    static_cast<void>(effort);
    return encode_literals(plane, out);
}

CodedPlane PlaneBlockCoder::encode_opaque(ByteSpan bytes, MutableByteSpan out, PlaneEffort effort) {
    if (is_constant(bytes)) {
        return store_repeated(bytes, out);
    }
    return effort == PlaneEffort::kFull ? encode_matches(3, bytes, out) : encode_literals(bytes, out);
}

CodedPlane PlaneBlockCoder::encode_literals(ByteSpan bytes, MutableByteSpan out) {
    const std::size_t written = literals_.write(bytes, out);
    return written == 0 ? store_raw(bytes, out) : CodedPlane{Coding::kZstd, written};
}

CodedPlane PlaneBlockCoder::encode_matches(int level, ByteSpan bytes, MutableByteSpan out) {
    const std::size_t written = zstd_.compress(bytes, out, level);
    return written == 0 || written >= bytes.size() ? store_raw(bytes, out) : CodedPlane{Coding::kZstd, written};
}

const std::byte* PlaneBlockCoder::decode(Coding coding, ByteSpan stored, MutableByteSpan scratch) {
    switch (coding) {
        case Coding::kRaw:
            return stored.size() == scratch.size() ? stored.data() : nullptr;
        case Coding::kRepeatedByte:
            if (stored.size() != 1) {
                return nullptr;
            }
            std::memset(scratch.data(), std::to_integer<int>(stored[0]), scratch.size());
            return scratch.data();
        case Coding::kZstd:
            return zstd_.decompress(stored, scratch) ? scratch.data() : nullptr;
    }
    return nullptr;
}

}  // namespace ckptfs
