// SPDX-License-Identifier: Apache-2.0
#include "codec/frame_report.h"

#include "base/little_endian.h"
#include "base/text.h"
#include "codec/container.h"
#include "codec/zstd_frames.h"

namespace ckptfs {
namespace {

using namespace plane_format;

// RFC 8878, 3.1.1.2.
constexpr std::size_t kBlockHeader = 3;
enum : std::uint32_t { kRawBlock = 0, kRleBlock = 1, kCompressedBlock = 2 };

Failure damaged(const char* what) {
    return failure(EIO, format("frame headers: {}", what));
}

// As plane_format::Reader, for numbers of any size.
class NumberReader {
public:
    explicit NumberReader(ByteSpan bytes) : bytes_(bytes) {}

    [[nodiscard]] bool skip(std::size_t size) {
        if (size > bytes_.size()) {
            return false;
        }
        bytes_ = bytes_.subspan(size);
        return true;
    }
    // A number of `size` bytes, 4 at most.
    [[nodiscard]] bool take(std::size_t size, std::uint32_t& number) {
        number = 0;
        for (std::size_t i = 0; i < size && i < bytes_.size(); ++i) {
            number |= std::to_integer<std::uint32_t>(bytes_[i]) << (8 * i);
        }
        return skip(size);
    }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }

private:
    ByteSpan bytes_;
};

// The header behind the magic number (RFC 8878, 3.1.1.1).
bool skip_zstd_header(NumberReader& reader) {
    std::uint32_t descriptor = 0;
    if (!reader.take(1, descriptor)) {
        return false;
    }
    const bool single_segment = (descriptor >> 5 & 1) != 0;
    const std::uint32_t size_flag = descriptor >> 6;
    const std::uint32_t dictionary_flag = descriptor & 3;
    const std::size_t window = single_segment ? 0 : 1;
    const std::size_t dictionary = dictionary_flag == 3 ? 4 : dictionary_flag;
    const std::size_t size = size_flag == 0 ? (single_segment ? 1 : 0) : std::size_t{1} << size_flag;
    return reader.skip(window + dictionary + size);
}

Result<FrameKind> zstd_kind(NumberReader reader) {
    if (!skip_zstd_header(reader)) {
        return damaged("a zstd frame ends too early");
    }
    FrameKind kind = FrameKind::kRawBlocks;
    for (bool last = false; !last;) {
        std::uint32_t header = 0;
        if (!reader.take(kBlockHeader, header)) {
            return damaged("a zstd frame ends too early");
        }
        last = (header & 1) != 0;
        const std::uint32_t type = header >> 1 & 3;
        const std::size_t size = header >> 3;
        if (type > kCompressedBlock || !reader.skip(type == kRleBlock ? 1 : size)) {
            return damaged("an invalid zstd block");
        }
        if (type != kRawBlock) {
            kind = FrameKind::kZstd;
        }
    }
    return kind;
}

Status report_sub_block(NumberReader& reader, std::uint32_t word, FrameReport& report) {
    const SubBlockHeader sub_block = header_of(word);
    const PlaneLayout& layout = sub_block.layout;
    if (impossible(sub_block)) {
        return damaged("a sub-block that this version does not know");
    }
    const std::size_t count = (sub_block.size - layout.phase) / layout.width;
    std::size_t bodies = sub_block.size - count * layout.width;
    if (sub_block.reference) {
        std::uint32_t exceptions = 0;
        if (!reader.skip(kReferenceHeader - sizeof(exceptions)) || !reader.take(sizeof(exceptions), exceptions)) {
            return damaged("a plane frame ends too early");
        }
        bodies += kExceptionSize * std::size_t{exceptions};
        report.references.push_back({2 * count, kExceptionSize * std::size_t{exceptions} + kReferenceHeader});
    }
    for (unsigned plane = 0; plane < stored_planes(sub_block); ++plane) {
        std::uint32_t header = 0;
        if (!reader.take(kPlaneHeader, header)) {
            return damaged("a plane frame ends too early");
        }
        const auto coding = static_cast<Coding>(packed_byte(header));
        if (coding > Coding::kCentred) {
            return damaged("a coding that this version does not know");
        }
        report.planes.push_back({layout.width, plane, coding, count, packed_number(header)});
        bodies += packed_number(header);
    }
    if (!reader.skip(bodies)) {
        return damaged("a plane frame ends too early");
    }
    return {};
}

Status report_planes(NumberReader reader, FrameReport& report) {
    std::uint32_t version_and_size = 0;
    if (!reader.take(sizeof(version_and_size), version_and_size) || packed_byte(version_and_size) != kVersion) {
        return damaged("a plane frame of a newer version");
    }
    std::size_t left = packed_number(version_and_size);
    while (left > 0) {
        std::uint32_t word = 0;
        if (!reader.take(kSubBlockHeader, word) || header_of(word).size > left) {
            return damaged("a plane frame ends too early");
        }
        if (Status known = report_sub_block(reader, word, report); !known) {
            return known;
        }
        left -= header_of(word).size;
    }
    return reader.empty() ? Status{} : Status{damaged("extra bytes after a plane frame")};
}

}  // namespace

Result<FrameReport> report_frame(ByteSpan stored) {
    const Result<std::uint64_t> padding = leading_skippable(stored);
    if (!padding) {
        return failure(padding.error());
    }
    FrameReport report;
    report.padding = *padding;
    NumberReader reader(stored.subspan(*padding));
    std::uint32_t magic = 0;
    if (!reader.take(sizeof(magic), magic)) {
        return damaged("nothing but padding");
    }
    if (magic == kMagic) {
        report.kind = FrameKind::kPlanes;
        if (const Status known = report_planes(reader, report); !known) {
            return failure(known.error());
        }
        return report;
    }
    if (magic != kZstdMagic) {
        return damaged("a frame of a kind that this version does not know");
    }
    return zstd_kind(reader).map([&](FrameKind kind) {
        report.kind = kind;
        return report;
    });
}

}  // namespace ckptfs
