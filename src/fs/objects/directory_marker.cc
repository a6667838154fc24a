// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/directory_marker.h"

#include <algorithm>
#include <array>

#include "base/little_endian.h"
#include "base/numbers.h"
#include "base/uuid.h"
#include "base/xxhash.h"
#include "ckptfs/bucket_layout.h"

namespace ckptfs::fs {

namespace {

constexpr std::string_view kMarkerMagic = "CKPTREN1";
constexpr std::string_view kNamesMagic = "CKPTNAM2";

// Offsets in a marker.
constexpr std::size_t kStateAt = 8;
constexpr std::size_t kFlagsAt = 9;
constexpr std::size_t kPrefixSizeAt = 10;
constexpr std::size_t kSourceSizeAt = 12;
constexpr std::size_t kDestinationSizeAt = 14;
constexpr std::size_t kTimeAt = 16;
constexpr std::size_t kRenameIdAt = 24;
constexpr std::size_t kWriterIdAt = 60;
constexpr std::size_t kKeysAt = 96;
static_assert(kKeysAt + 2 * kMaxKeyBytes <= kDirectoryMarkerSize);

// Flags.
constexpr unsigned kReplacesEmptyDirectory = 1;
constexpr unsigned kSourceWasImplied = 2;
constexpr std::size_t kHashDigits = 16;
// In milliseconds: the year 2109. Times up to this overflow no clock.
constexpr std::uint64_t kLatest = std::uint64_t{1} << 42;

// Keys have at most 1,024 bytes. A longer ETag is not written down.
std::uint16_t size_u16(std::string_view key) {
    return static_cast<std::uint16_t>(key.size());
}

// Whether this is the key of a directory below the prefix that a mount of the prefix shows.
bool is_directory_key(std::string_view key, std::string_view prefix) {
    if (!key.starts_with(prefix) || !key.ends_with('/') || key.size() > kMaxKeyBytes) {
        return false;
    }
    const std::string_view path = key.substr(prefix.size());
    const std::string_view first = path.substr(0, path.find('/'));
    return !first.empty() && first != kControlDirectory;
}

std::string hash_digits(std::uint64_t hash) {
    std::string digits(kHashDigits, '0');
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4) {
        *digit = "0123456789abcdef"[hash & 15];
    }
    return digits;
}

std::optional<std::uint64_t> parse_hash(std::string_view digits) {
    return digits.size() == kHashDigits ? whole_number<std::uint64_t>(digits, 16) : std::nullopt;
}

void append_sized(std::string& bytes, const std::string& text) {
    std::array<char, 2> size{};
    store_u16(size.data(), size_u16(text));
    bytes.append(size.data(), size.size());
    bytes += text;
}

std::optional<std::string_view> take_sized(std::string_view& bytes) {
    if (bytes.size() < 2) {
        return std::nullopt;
    }
    const std::size_t size = load_u16(bytes.data());
    bytes.remove_prefix(2);
    if (size > kMaxKeyBytes || size > bytes.size()) {
        return std::nullopt;
    }
    const std::string_view text = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return text;
}

}  // namespace

std::string encode_marker(const DirectoryMarker& marker) {
    std::string bytes(kDirectoryMarkerSize, '\0');
    char* const at = bytes.data();
    kMarkerMagic.copy(at, kMarkerMagic.size());
    at[kStateAt] = static_cast<char>(marker.state);
    at[kFlagsAt] = static_cast<char>((marker.replaces_empty_directory ? kReplacesEmptyDirectory : 0) |
                                     (marker.source_was_implied ? kSourceWasImplied : 0));
    store_u16(at + kPrefixSizeAt, size_u16(marker.prefix));
    store_u16(at + kSourceSizeAt, size_u16(marker.source));
    store_u16(at + kDestinationSizeAt, size_u16(marker.destination));
    const auto time = std::chrono::duration_cast<Milliseconds>(marker.written.time_since_epoch()).count();
    store_u64(at + kTimeAt, static_cast<std::uint64_t>(time));
    marker.rename_id.copy(at + kRenameIdAt, kUuidSize);
    marker.writer_id.copy(at + kWriterIdAt, kUuidSize);
    marker.source.copy(at + kKeysAt, kMaxKeyBytes);
    marker.destination.copy(at + kKeysAt + marker.source.size(), kMaxKeyBytes);
    return bytes;
}

std::optional<DirectoryMarker> parse_marker(std::string_view bytes) {
    if (bytes.size() != kDirectoryMarkerSize || !bytes.starts_with(kMarkerMagic)) {
        return std::nullopt;
    }
    const char* const at = bytes.data();
    const auto state = static_cast<std::uint8_t>(at[kStateAt]);
    const unsigned flags = static_cast<std::uint8_t>(at[kFlagsAt]);
    const std::size_t prefix_size = load_u16(at + kPrefixSizeAt);
    const std::size_t source_size = load_u16(at + kSourceSizeAt);
    const std::size_t destination_size = load_u16(at + kDestinationSizeAt);
    if (state < static_cast<std::uint8_t>(MarkerState::kPending) ||
        state > static_cast<std::uint8_t>(MarkerState::kRollingBack) ||
        flags > (kReplacesEmptyDirectory | kSourceWasImplied) || source_size > kMaxKeyBytes ||
        destination_size > kMaxKeyBytes || prefix_size >= source_size) {
        return std::nullopt;
    }
    DirectoryMarker marker;
    marker.state = static_cast<MarkerState>(state);
    marker.replaces_empty_directory = (flags & kReplacesEmptyDirectory) != 0;
    marker.source_was_implied = (flags & kSourceWasImplied) != 0;
    marker.source = bytes.substr(kKeysAt, source_size);
    marker.destination = bytes.substr(kKeysAt + source_size, destination_size);
    marker.prefix = marker.source.substr(0, prefix_size);
    marker.rename_id = bytes.substr(kRenameIdAt, kUuidSize);
    marker.writer_id = bytes.substr(kWriterIdAt, kUuidSize);
    const std::uint64_t time = load_u64(at + kTimeAt);
    marker.written = WallTime(Milliseconds(static_cast<std::int64_t>(std::min(time, kLatest))));
    const bool prefix_ends = marker.prefix.empty() || marker.prefix.ends_with('/');
    if (!prefix_ends || !is_uuid(marker.rename_id) || !is_uuid(marker.writer_id) || time > kLatest ||
        !is_directory_key(marker.source, marker.prefix) || !is_directory_key(marker.destination, marker.prefix) ||
        marker.source.starts_with(marker.destination) || marker.destination.starts_with(marker.source)) {
        return std::nullopt;
    }
    return marker;
}

std::string made_text(WallTime made) {
    const auto since_epoch = std::chrono::duration_cast<Milliseconds>(made.time_since_epoch());
    return std::to_string(std::max(Milliseconds(0), since_epoch).count());
}

WallTime directory_made(const ObjectInfo& marker) {
    const auto made = marker.metadata.find(kMadeMetadata);
    const auto time = made == marker.metadata.end() ? std::nullopt : whole_number<std::uint64_t>(made->second);
    if (!time || *time > kLatest) {
        return marker.last_modified;
    }
    return std::min(WallTime(Milliseconds(static_cast<std::int64_t>(*time))), marker.last_modified);
}

bool marks(const DirectoryMarker& marker, std::string_view key) {
    return (marker.state == MarkerState::kPending && key == marker.destination) ||
           (marker.state == MarkerState::kMoved && key == marker.source);
}

std::string record_key(const DirectoryMarker& marker) {
    return marker.prefix + std::string(kRenamesPrefix) + marker.rename_id + "-" +
           hash_digits(path_hash(marker.source)) + "-" + hash_digits(path_hash(marker.destination));
}

std::string names_key(const DirectoryMarker& marker) {
    return marker.prefix + std::string(kRenameNamesPrefix) + marker.rename_id;
}

std::optional<RecordedPaths> recorded_paths(std::string_view prefix, std::string_view record_key) {
    const std::size_t directory = prefix.size() + kRenamesPrefix.size();
    if (record_key.size() != directory + kUuidSize + 2 * (1 + kHashDigits)) {
        return std::nullopt;
    }
    const std::string_view name = record_key.substr(directory);
    const auto source = parse_hash(name.substr(kUuidSize + 1, kHashDigits));
    const auto destination = parse_hash(name.substr(kUuidSize + 2 + kHashDigits));
    if (!is_uuid(name.substr(0, kUuidSize)) || !source || !destination || name[kUuidSize] != '-' ||
        name[kUuidSize + 1 + kHashDigits] != '-') {
        return std::nullopt;
    }
    return RecordedPaths{*source, *destination};
}

std::uint64_t path_hash(std::string_view directory_key) {
    return xxh64(as_bytes(directory_key));
}

std::string encode_names(const std::vector<MovedName>& names) {
    std::string bytes(kNamesMagic);
    for (const MovedName& each : names) {
        append_sized(bytes, each.name);
        append_sized(bytes, each.etag.size() > kMaxKeyBytes ? "" : each.etag);
    }
    return bytes;
}

std::optional<std::vector<MovedName>> parse_names(std::string_view bytes) {
    if (!bytes.starts_with(kNamesMagic)) {
        return std::nullopt;
    }
    bytes.remove_prefix(kNamesMagic.size());
    std::vector<MovedName> names;
    while (!bytes.empty()) {
        const auto name = take_sized(bytes);
        const auto etag = take_sized(bytes);
        if (!name || name->empty() || !etag) {
            return std::nullopt;
        }
        names.push_back({std::string(*name), std::string(*etag)});
    }
    return names;
}

}  // namespace ckptfs::fs
