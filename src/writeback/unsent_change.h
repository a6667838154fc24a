// SPDX-License-Identifier: Apache-2.0
// A change of the bucket that was acknowledged and is not made there yet, and the text of the log that holds them
// (--ack disk).
//
// The log is a row of entries: four bytes with the length of what follows the header, four with its CRC-32C
// (little-endian), then CBOR (RFC 8949). An entry is a change, or says that a change has been made, and under which
// ETag. What is unsent is what no later entry says is made. Entries are written in batches, each flushed before the
// next; the topmost bit of a length says that a batch begins with the entry. A row ends at the first entry that is cut
// off or damaged: a power cut leaves of the last batch whatever the disk had of it.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs {

// Checksums of a local piece are of so many bytes each, the last one of what is left.
inline constexpr std::uint64_t kChecksumBlock = std::uint64_t{1} << 20;
// In bytes. A body up to this size lies in the log itself: one flush less.
inline constexpr std::uint64_t kMostInline = std::uint64_t{4} << 10;

// Bytes of an object, in order of their place: where they are.
struct BodyPiece {
    enum class Place : std::uint8_t { kInline, kFile, kObject };
    Place place = Place::kInline;
    std::uint64_t size = 0;

    // kInline
    std::string bytes{};
    // kFile: the number of a body file, the first byte there, and what the bytes sum up to.
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    std::vector<std::uint32_t> checksums{};
    // kObject: of this version of an object that is in the bucket, or will be by then, under the ETag that it was
    // acknowledged with; `offset` is that in the object.
    std::string key{};
    std::string etag{};
    // All of it: S3 copies no range of an object of up to 5 MiB.
    bool is_whole = false;

    [[nodiscard]] static BodyPiece of_object(std::string key, std::string etag, std::uint64_t offset,
                                             std::uint64_t size, std::uint64_t object_size) {
        BodyPiece piece;
        piece.place = Place::kObject;
        piece.is_whole = size == object_size;
        piece.size = size;
        piece.offset = offset;
        piece.key = std::move(key);
        piece.etag = std::move(etag);
        return piece;
    }

    friend bool operator==(const BodyPiece&, const BodyPiece&) = default;
};

struct UnsentChange {
    enum class Kind : std::uint8_t { kPut, kCopy, kRemove };
    // In the order of acknowledgement, from 1 on.
    std::uint64_t number = 0;
    Kind kind = Kind::kPut;
    // What is there afterwards, as it was acknowledged: its ETag is the store's only by chance. Of a removal, the key.
    ObjectInfo object;
    // kPut. Each but the last is as large as a part has to be, where there are several.
    std::vector<BodyPiece> body;
    // kCopy: the version that is copied, and whether the copy has a description of its own.
    std::string source_key;
    std::string source_etag;
    bool is_described = false;
    // Only where there is nothing, or only in place of this version; as it is known here.
    bool if_none_match = false;
    std::string if_match;
    // All that was acknowledged before it is in the bucket before it, and what comes after it is not.
    bool is_barrier = false;
    // By which others are told that it is unsent (announcements.h); empty for none.
    std::string announcement{};
    // Of a marker: what others had announced before it was acknowledged, as digests of the keys.
    std::vector<std::uint64_t> awaited{};
};

// Empty but for the number where the ETag is the one that was acknowledged, and of a removal.
struct SentChange {
    std::uint64_t number = 0;
    std::string key;
    // As it was acknowledged, and as the store knows it.
    std::string acknowledged_etag;
    std::string etag;

    friend bool operator==(const SentChange&, const SentChange&) = default;
};

using LogEntry = std::variant<UnsentChange, SentChange>;

[[nodiscard]] std::string encode_entry(const LogEntry& entry);
// Of entries, one at least, that are flushed together.
void begin_batch(std::string& entries);

struct LogContents {
    std::vector<LogEntry> entries;
    // Of the text, up to the first entry that is cut off or damaged.
    std::size_t whole = 0;
    // Another batch follows it, which no power cut leaves.
    bool is_damaged_inside = false;
    // What follows it is whole, but of another form: a later version's.
    bool is_foreign = false;
};

[[nodiscard]] LogContents parse_log(std::string_view text);

}  // namespace ckptfs
