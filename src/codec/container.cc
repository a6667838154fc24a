// SPDX-License-Identifier: Apache-2.0
#include "codec/container.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/little_endian.h"
#include "base/text.h"
#include "base/zeros.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {
namespace {

// RFC 8878, 3.1.2: sixteen magic numbers from this one on. The last but one is the seek table's (seekable format).
constexpr std::uint32_t kSkippableMagic = 0x184D2A50;
constexpr std::uint32_t kPaddingMagic = 0x184D2A5D;
constexpr std::uint32_t kSeekTableMagic = 0x184D2A5E;
// Seekable format: the last four bytes of the object.
constexpr std::uint32_t kSeekableMagic = 0x8F92EAB1;
constexpr std::uint8_t kChecksumFlag = 0x80;
// One of the two bits that the seekable format leaves unused, and that its readers do not interpret: no frame refers to
// another.
constexpr std::uint8_t kNoReferencesFlag = 0x01;
constexpr std::uint64_t kEntrySize = 12;
constexpr std::uint64_t kFooterSize = 9;
// No file is larger than the largest object: its table takes 60 MiB.
constexpr std::uint64_t kMaxFrames = kMaxObjectSize / kFrameSize;

std::uint64_t table_bytes(std::uint64_t frames) {
    return kSkippableHeader + frames * kEntrySize + kFooterSize;
}

Failure damaged(const char* what) {
    return damage(format("the frame table is damaged ({})", what));
}

// A frame's entry in the table.
struct Entry {
    std::uint32_t stored_size = 0;
    std::uint32_t size = 0;
    std::uint32_t checksum = 0;
};

Entry entry_at(const std::byte* bytes) {
    return {load_u32(bytes), load_u32(bytes + 4), load_u32(bytes + 8)};
}

std::uint8_t flags_of(const std::byte* footer) {
    return std::to_integer<std::uint8_t>(footer[4]);
}

bool may_refer(const FrameRecord& frame) {
    return frame.may_refer;
}

Result<std::uint64_t> frame_count(ByteSpan end, std::uint64_t object_size) {
    if (end.size() < kFooterSize || load_u32(end.data() + end.size() - 4) != kSeekableMagic) {
        return damaged("no footer");
    }
    const std::byte* const footer = end.data() + end.size() - kFooterSize;
    const std::uint64_t frames = load_u32(footer);
    if ((flags_of(footer) & ~kNoReferencesFlag) != kChecksumFlag) {
        return damaged("its flags are not known");
    }
    if (frames == 0 || frames > kMaxFrames || table_bytes(frames) + kSkippableHeader + frames > object_size) {
        return damaged("the number of frames");
    }
    return frames;
}

}  // namespace

Payload skippable_frame(std::uint64_t size) {
    std::string header(kSkippableHeader, '\0');
    store_u32(header.data(), kPaddingMagic);
    store_u32(header.data() + 4, static_cast<std::uint32_t>(size - kSkippableHeader));
    Payload frame = Payload::from_string(std::move(header));
    while (frame.size() < size) {
        frame.append(zeros(size - frame.size()));
    }
    return frame;
}

std::string container_tail(const std::vector<FrameRecord>& frames, std::uint64_t size, References references) {
    const std::uint64_t frames_size =
        std::accumulate(frames.begin(), frames.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const FrameRecord& frame) { return sum + frame.stored_size; });
    const std::uint64_t table = table_bytes(frames.size());
    const std::uint64_t least = frames_size + kSkippableHeader + table;
    const std::uint64_t padding = next_marked_size(least) - least;
    std::string tail(kSkippableHeader + padding + table, '\0');
    char* next = tail.data();
    store_u32(next, kPaddingMagic);
    store_u32(next + 4, static_cast<std::uint32_t>(padding));
    next += kSkippableHeader + padding;
    store_u32(next, kSeekTableMagic);
    store_u32(next + 4, static_cast<std::uint32_t>(table - kSkippableHeader));
    next += kSkippableHeader;
    std::uint64_t offset = 0;
    for (const FrameRecord& frame : frames) {
        const std::uint64_t raw = std::min<std::uint64_t>(kFrameSize, size - offset);
        store_u32(next, frame.stored_size);
        store_u32(next + 4, static_cast<std::uint32_t>(raw));
        store_u32(next + 8, frame.checksum);
        offset += raw;
        next += kEntrySize;
    }
    store_u32(next, static_cast<std::uint32_t>(frames.size()));
    const bool none_refers =
        references == References::kPossible && std::none_of(frames.begin(), frames.end(), may_refer);
    next[4] = static_cast<char>(kChecksumFlag | (none_refers ? kNoReferencesFlag : 0));
    store_u32(next + 5, kSeekableMagic);
    return tail;
}

Result<std::uint64_t> leading_skippable(ByteSpan stored) {
    std::uint64_t skipped = 0;
    while (stored.size() - skipped >= kSkippableHeader &&
           (load_u32(stored.data() + skipped) & ~std::uint32_t{15}) == kSkippableMagic) {
        skipped += kSkippableHeader + load_u32(stored.data() + skipped + 4);
        if (skipped > stored.size()) {
            return failure(EIO, "padding does not end within its frame");
        }
    }
    return skipped;
}

Result<std::uint64_t> table_size(ByteSpan end, std::uint64_t object_size) {
    return frame_count(end, object_size).map(table_bytes);
}

Result<std::uint64_t> container_file_size(ByteSpan end, std::uint64_t object_size) {
    const Result<std::uint64_t> frames = frame_count(end, object_size);
    if (!frames) {
        return frames;
    }
    if (end.size() < kFooterSize + kEntrySize) {
        return damaged("cut short");
    }
    const Entry last = entry_at(end.data() + end.size() - kFooterSize - kEntrySize);
    if (last.size == 0 || last.size > kFrameSize) {
        return damaged("a frame's size");
    }
    return (*frames - 1) * kFrameSize + last.size;
}

Result<FrameTable> FrameTable::parse(ByteSpan end, std::uint64_t object_size, References references) {
    const Result<std::uint64_t> frames = frame_count(end, object_size);
    if (!frames) {
        return failure(frames.error());
    }
    const std::uint64_t bytes = table_bytes(*frames);
    if (end.size() < bytes) {
        return damaged("cut short");
    }
    const std::byte* next = end.data() + end.size() - bytes;
    if (load_u32(next) != kSeekTableMagic || load_u32(next + 4) != bytes - kSkippableHeader) {
        return damaged("its header");
    }
    next += kSkippableHeader;
    const bool refer = references == References::kPossible &&
                       (flags_of(end.data() + end.size() - kFooterSize) & kNoReferencesFlag) == 0;
    FrameTable table;
    table.records_.reserve(*frames);
    std::uint64_t offset = 0;
    for (std::uint64_t index = 0; index < *frames; ++index, next += kEntrySize) {
        const Entry entry = entry_at(next);
        const bool last = index + 1 == *frames;
        if (entry.size == 0 || entry.size > kFrameSize || (!last && entry.size != kFrameSize) ||
            entry.stored_size == 0 || entry.stored_size > kMaxStoredFrame) {
            return damaged("a frame's size");
        }
        if (index % kStride == 0) {
            table.offsets_.push_back(offset);
        }
        table.records_.push_back({entry.stored_size, entry.checksum, refer});
        table.size_ += entry.size;
        offset += entry.stored_size;
    }
    if (offset + kSkippableHeader + bytes > object_size) {
        return damaged("its frames are larger than the object");
    }
    return table;
}

Frame FrameTable::frame(std::uint64_t index) const {
    Frame frame;
    frame.index = index;
    frame.offset = index * kFrameSize;
    frame.size = std::min<std::uint64_t>(kFrameSize, size_ - frame.offset);
    frame.stored_offset = offsets_[index / kStride];
    for (std::uint64_t before = index / kStride * kStride; before < index; ++before) {
        frame.stored_offset += records_[before].stored_size;
    }
    frame.stored_size = records_[index].stored_size;
    return frame;
}

}  // namespace ckptfs
