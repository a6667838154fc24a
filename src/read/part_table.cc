// SPDX-License-Identifier: Apache-2.0
#include "read/part_table.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/little_endian.h"
#include "base/numbers.h"

namespace ckptfs {

namespace {

// APPNOTE.TXT: 4.3.16, 4.3.15, 4.3.14, 4.3.12, 4.5.3.
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::size_t kEndSize = 22;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::size_t kLocatorSize = 20;
constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
constexpr std::size_t kZip64EndSize = 56;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::size_t kEntrySize = 46;
constexpr std::uint16_t kZip64Extra = 0x0001;
// The value is in the zip64 record or field.
constexpr std::uint32_t kElsewhere = 0xffffffff;

struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // Offset of what follows the directory.
    std::uint64_t end = 0;
};

// The bytes [offset, offset + count) of the file; empty where `end` does not hold them all.
ByteSpan part_of(ByteSpan end, std::uint64_t size, std::uint64_t offset, std::uint64_t count) {
    const std::uint64_t first = size - end.size();
    if (offset < first || offset > size || count > size - offset) {
        return {};
    }
    return end.subspan(offset - first, count);
}

// What the zip64 record says, where there is one, as torch.save writes it whether it is needed or not.
std::optional<Directory> zip64_directory(ByteSpan end, std::uint64_t size) {
    if (end.size() < kEndSize + kLocatorSize) {
        return std::nullopt;
    }
    const std::byte* locator = end.data() + end.size() - kEndSize - kLocatorSize;
    const std::uint64_t offset = load_u64(locator + 8);
    const ByteSpan record = part_of(end, size, offset, kZip64EndSize);
    if (load_u32(locator) != kLocatorSignature || record.empty() || load_u32(record.data()) != kZip64EndSignature) {
        return std::nullopt;
    }
    return Directory{load_u64(record.data() + 48), load_u64(record.data() + 40), offset};
}

std::optional<Directory> directory_of(ByteSpan end, std::uint64_t size) {
    if (end.size() < kEndSize || end.size() > size) {
        return std::nullopt;
    }
    const std::byte* record = end.data() + end.size() - kEndSize;
    if (load_u32(record) != kEndSignature) {
        return std::nullopt;
    }
    const Directory directory =
        zip64_directory(end, size).value_or(Directory{load_u32(record + 16), load_u32(record + 12), size - kEndSize});
    // A zip file at the end of another file counts from its own beginning.
    const bool is_whole_file = directory.offset <= directory.end && directory.size == directory.end - directory.offset;
    return is_whole_file ? std::optional(directory) : std::nullopt;
}

// `extra`: the extra field of an entry whose offset does not fit into 32 bits; `sizes_before`: how many of its sizes do
// not fit, either.
std::optional<std::uint64_t> zip64_offset(ByteSpan extra, std::size_t sizes_before) {
    while (extra.size() >= 4) {
        const std::size_t length = load_u16(extra.data() + 2);
        if (length > extra.size() - 4) {
            return std::nullopt;
        }
        if (load_u16(extra.data()) == kZip64Extra) {
            const std::size_t at = sizes_before * sizeof(std::uint64_t);
            return length >= at + sizeof(std::uint64_t) ? std::optional(load_u64(extra.data() + 4 + at)) : std::nullopt;
        }
        extra = extra.subspan(4 + length);
    }
    return std::nullopt;
}

std::optional<std::uint64_t> header_offset(ByteSpan entry, std::size_t name_length, std::size_t extra_length) {
    const std::uint32_t offset = load_u32(entry.data() + 42);
    if (offset != kElsewhere) {
        return offset;
    }
    const std::size_t sizes =
        (load_u32(entry.data() + 24) == kElsewhere ? 1U : 0U) + (load_u32(entry.data() + 20) == kElsewhere ? 1U : 0U);
    return zip64_offset(entry.subspan(kEntrySize + name_length, extra_length), sizes);
}

void sort(PartOffsets& parts) {
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
}

// Takes the number behind `"data_offsets": [`, and what comes before it.
std::optional<std::uint64_t> take_offset(std::string_view& header) {
    constexpr std::string_view kName = "\"data_offsets\"";
    constexpr std::string_view kBlanksAnd = " \t\r\n:[";
    const std::size_t found = header.find(kName);
    if (found == std::string_view::npos) {
        return std::nullopt;
    }
    header.remove_prefix(found + kName.size());
    header.remove_prefix(std::min(header.find_first_not_of(kBlanksAnd), header.size()));
    return take_number<std::uint64_t>(header);
}

}  // namespace

PartOffsets zip_records(ByteSpan end, std::uint64_t size) {
    const std::optional<Directory> directory = directory_of(end, size);
    if (!directory) {
        return {};
    }
    ByteSpan entries = part_of(end, size, directory->offset, directory->size);
    PartOffsets records;
    while (entries.size() >= kEntrySize && load_u32(entries.data()) == kEntrySignature) {
        const std::size_t name_length = load_u16(entries.data() + 28);
        const std::size_t extra_length = load_u16(entries.data() + 30);
        const std::size_t length = kEntrySize + name_length + extra_length + load_u16(entries.data() + 32);
        if (length > entries.size() || records.size() == kMaxParts) {
            return {};
        }
        const std::optional<std::uint64_t> offset = header_offset(entries, name_length, extra_length);
        if (!offset || *offset >= directory->offset) {
            return {};
        }
        records.push_back(*offset);
        entries = entries.subspan(length);
    }
    if (!entries.empty()) {
        return {};
    }
    sort(records);
    return records;
}

PartOffsets safetensors_tensors(ByteSpan head, std::uint64_t size) {
    constexpr std::size_t kLengthSize = sizeof(std::uint64_t);
    if (head.size() <= kLengthSize || head.size() > size || head[kLengthSize] != std::byte{'{'}) {
        return {};
    }
    const std::uint64_t length = load_u64(head.data());
    if (length > head.size() - kLengthSize) {
        return {};
    }
    const std::uint64_t data = kLengthSize + length;
    std::string_view header = as_text(head.subspan(kLengthSize, length));
    PartOffsets tensors;
    while (const std::optional<std::uint64_t> offset = take_offset(header)) {
        if (*offset >= size - data || tensors.size() == kMaxParts) {
            return {};
        }
        tensors.push_back(data + *offset);
    }
    sort(tensors);
    return tensors;
}

}  // namespace ckptfs
