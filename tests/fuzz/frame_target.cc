// SPDX-License-Identifier: Apache-2.0
// Frames are read from objects that anybody may have written. An input is what the table says of the frame (three
// bytes: the size of its piece, one: the kind of its checksum, four: the checksum), and the frame.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/little_endian.h"
#include "codec/frame_coding.h"
#include "codec/frame_report.h"
#include "referenced_bytes.h"
#include "require.h"

namespace ckptfs {
namespace {

constexpr std::size_t kHeader = 8;

void check_report(const FrameReport& report, std::size_t stored_size, std::size_t size) {
    CKPTFS_REQUIRE(report.padding < stored_size);
    std::size_t planes = 0;
    std::size_t stored_planes = 0;
    for (const StoredPlane& plane : report.planes) {
        planes += plane.size;
        stored_planes += plane.stored_size;
    }
    CKPTFS_REQUIRE(planes <= size && stored_planes < stored_size);
}

void check(ByteSpan input) {
    const std::uint32_t word = load_u32(input.data());
    const auto kind = (word >> 24 & 1) != 0 ? FrameChecksum::kCrc32c : FrameChecksum::kXxh64;
    std::vector<std::byte> raw(std::clamp<std::size_t>(word & 0xffffff, 1, kFrameSize));
    const ByteSpan frame = input.subspan(kHeader);
    Payload stored;
    stored.append(Slice{nullptr, frame});
    const auto references = frame_references(stored, kFrameSize);
    CKPTFS_REQUIRE(references || references.error().errno_value == EIO);
    const Payload referenced = references ? referenced_bytes(*references) : Payload();
    CKPTFS_REQUIRE(referenced.size() <= kFrameSize / 2);
    const Status decoded = decode_frame(stored, referenced, raw, kind, load_u32(input.data() + 4));
    CKPTFS_REQUIRE(decoded || (decoded.error().errno_value == EIO && !decoded.error().message.empty()));
    const Result<FrameReport> report = report_frame(frame);
    CKPTFS_REQUIRE(report || report.error().errno_value == EIO);
    if (decoded || decoded.error().message == "the checksum differs") {
        CKPTFS_REQUIRE(report && (!references || report->references.size() == references->size()));
        check_report(*report, frame.size(), raw.size());
    }
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    using namespace ckptfs;
    if (size > kHeader) {
        check({reinterpret_cast<const std::byte*>(data), size});
    }
    return 0;
}
