// SPDX-License-Identifier: Apache-2.0
// Plane frames are read from objects that anybody may have written, and made from any file.
#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/plane_frame.h"
#include "require.h"

namespace ckptfs {
namespace {

// What the frame says that it holds; the decoder checks it against what the seek table says.
std::size_t claimed_size(ByteSpan stored) {
    std::uint32_t word = 0;
    if (stored.size() >= 8) {
        std::memcpy(&word, stored.data() + 4, sizeof(word));
    }
    return std::clamp<std::size_t>(word >> 8, 1, kMaxPlaneFrameRaw);
}

void check_decoder(PlaneCoder& coder, ByteSpan stored) {
    std::vector<std::byte> raw(claimed_size(stored));
    const Status decoded = coder.decode(stored, raw);
    if (!decoded) {
        CKPTFS_REQUIRE(decoded.error().errno_value == EIO && !decoded.error().message.empty());
    }
}

void check_round_trip(PlaneCoder& coder, ByteSpan raw, PlaneEffort effort) {
    std::vector<std::byte> stored(PlaneCoder::bound(raw.size()));
    const std::size_t written = coder.encode(raw, stored, effort);
    CKPTFS_REQUIRE(written < raw.size());
    if (written == 0) {
        return;
    }
    stored.resize(written);
    stored.shrink_to_fit();
    std::vector<std::byte> back(raw.size());
    CKPTFS_REQUIRE(coder.decode(stored, back));
    CKPTFS_REQUIRE(std::equal(back.begin(), back.end(), raw.begin()));
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    using namespace ckptfs;
    static PlaneCoder coder;
    const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
    check_decoder(coder, bytes);
    if (size > 0 && size <= kMaxPlaneFrameRaw) {
        check_round_trip(coder, bytes, PlaneEffort::kFast);
        check_round_trip(coder, bytes, PlaneEffort::kFull);
    }
    return 0;
}
