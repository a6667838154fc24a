// SPDX-License-Identifier: Apache-2.0
// Plane frames are read from objects that anybody may have written, and made from any file.
#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/bf16.h"
#include "codec/plane_frame.h"
#include "codec/reference_index.h"
#include "referenced_bytes.h"
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
    const auto references = plane_references(stored, kFrameSize);
    CKPTFS_REQUIRE(references || references.error().errno_value == EIO);
    const Payload referenced = references ? referenced_bytes(*references) : Payload();
    const Status decoded = coder.decode(stored, referenced, raw);
    if (!decoded) {
        CKPTFS_REQUIRE(decoded.error().errno_value == EIO && !decoded.error().message.empty());
    }
}

void check_round_trip(PlaneCoder& coder, ByteSpan raw) {
    std::vector<std::byte> stored(PlaneCoder::bound(raw.size()));
    const std::size_t written = coder.encode(raw, stored);
    CKPTFS_REQUIRE(written < raw.size());
    if (written == 0) {
        return;
    }
    stored.resize(written);
    stored.shrink_to_fit();
    std::vector<std::byte> back(raw.size());
    CKPTFS_REQUIRE(coder.decode(stored, {}, back));
    CKPTFS_REQUIRE(std::equal(back.begin(), back.end(), raw.begin()));
}

// Behind a frame that its own second half refers to, as far as it has floats.
void check_references(PlaneCoder& coder, ByteSpan raw) {
    // Kept from input to input: fresh memory takes longer than all else here.
    static std::vector<std::byte> file;
    static std::vector<std::byte> stored(PlaneCoder::bound_in_file(kFrameSize));
    file.assign(kFrameSize + raw.size(), std::byte{});
    std::vector<std::uint16_t> rounded(raw.size() / 4);
    round_to_bf16(raw.data(), rounded.size(), rounded.data());
    if (!rounded.empty()) {
        std::memcpy(file.data(), rounded.data(), 2 * rounded.size());
    }
    ReferenceIndex index(kFrameSize);
    coder.encode_in_file(ByteSpan(file).first(kFrameSize), 0, index, stored);
    const auto encoded = coder.encode_in_file(raw, kFrameSize, index, stored);
    if (encoded.size == 0) {
        return;
    }
    const ByteSpan frame = ByteSpan(stored).first(encoded.size);
    const auto references = plane_references(frame, kFrameSize);
    CKPTFS_REQUIRE(references && *references == encoded.references);
    Payload referenced;
    for (const FileRange& range : *references) {
        referenced.append(Slice{nullptr, ByteSpan(file).subspan(range.offset, range.size)});
    }
    std::vector<std::byte> back(raw.size());
    CKPTFS_REQUIRE(coder.decode(frame, referenced, back));
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
        check_round_trip(coder, bytes);
        check_references(coder, bytes);
    }
    return 0;
}
