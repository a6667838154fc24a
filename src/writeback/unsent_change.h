// SPDX-License-Identifier: Apache-2.0
// A change of the bucket that was acknowledged and is not made there yet, and the encoding of the log that holds such
// changes (--ack disk).
//
// The log is a sequence of entries: four bytes with the length of what follows the header, four with its CRC-32C
// (little-endian), then CBOR (RFC 8949). An entry is a change, or says that a change has been made, and under which
// ETag, or that it is a marker that will not be made. A change is unsent until an entry says one of these of it.
// Entries are written in batches, each flushed before the next; the topmost bit of a length marks the first entry of a
// batch. The log ends at the first entry that is cut off or damaged: of the last batch, a power cut leaves whatever the
// disk had of it.
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

// Bytes that each checksum of a piece in a file covers; the last one covers the rest.
inline constexpr std::uint64_t kChecksumBlock = std::uint64_t{1} << 20;
// In bytes. A body up to this size lies in the log itself, which saves a flush.
inline constexpr std::uint64_t kMostInline = std::uint64_t{4} << 10;

// A run of an object's bytes, and where they are. The pieces of an object are in the order of its bytes.
struct BodyPiece {
    enum class Place : std::uint8_t { kInline, kFile, kObject };
    Place place = Place::kInline;
    std::uint64_t size = 0;

    // kInline
    std::string bytes{};
    // kFile: number of the body file, offset of the first byte in it, CRC-32C of each block.
    std::uint64_t file = 0;
    std::uint64_t offset = 0;
    std::vector<std::uint32_t> checksums{};
    // kObject: a version of an object that is in the bucket, or will be when this change is made; its ETag is that of
    // its acknowledgement. `offset` is that in the object.
    std::string key{};
    std::string etag{};
    // The piece is the whole object: S3 copies no range of an object of up to 5 MiB.
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
    // The object after the change, as acknowledged: its ETag is the store's only by chance. For a removal, its key and
    // time.
    ObjectInfo object;
    // kPut: the content. If there are several pieces, each but the last is as large as a part has to be.
    std::vector<BodyPiece> body;
    // kCopy: the version that is copied, and whether the copy has its own description.
    std::string source_key;
    std::string source_etag;
    bool is_described = false;
    // Conditions: only if the key does not exist; only in place of the version with this ETag, as known here.
    bool if_none_match = false;
    std::string if_match;
    // Of a removal: that version was not in the bucket when this was acknowledged, and may never be.
    bool follows_unsent = false;
    // All that was acknowledged before it is in the bucket before it, and nothing that comes after it is.
    bool is_barrier = false;
    // The announcement by which other mounts are told that it is unsent (announcements.h); empty for none.
    std::string announcement{};
    // For a marker: what other mounts had announced before it was acknowledged, as digests of the keys.
    std::vector<std::uint64_t> awaited{};
};

// Says that a change has been made. Only the number is set for a removal, and for a change that will not be made.
struct SentChange {
    std::uint64_t number = 0;
    std::string key;
    // The object's ETag as it was acknowledged, and as the store knows it.
    std::string acknowledged_etag;
    std::string etag;

    friend bool operator==(const SentChange&, const SentChange&) = default;
};

// Says that a marker will not be made, which counts until a SentChange of its number.
struct GivenUpChange {
    std::uint64_t number = 0;
    std::string key;
    // By the clock of the mount.
    WallTime since{};

    friend bool operator==(const GivenUpChange&, const GivenUpChange&) = default;
};

using LogEntry = std::variant<UnsentChange, SentChange, GivenUpChange>;

// Of the change that it is or tells of.
[[nodiscard]] inline std::uint64_t number_of(const LogEntry& entry) {
    return std::visit([](const auto& one) { return one.number; }, entry);
}

// Whether one of these is unsent.
[[nodiscard]] bool has_unsent(const std::vector<LogEntry>& entries);

[[nodiscard]] std::string encode_entry(const LogEntry& entry);
// Marks encoded entries, one at least, as a batch: they are flushed together.
void begin_batch(std::string& entries);

struct LogContents {
    std::vector<LogEntry> entries;
    // Length in bytes of the text up to the first entry that is cut off or damaged.
    std::size_t whole = 0;
    // Another batch follows that entry, which no power cut leaves.
    bool is_damaged_inside = false;
    // What follows is whole, but of an unknown form: a later version of ckptfs wrote it.
    bool is_foreign = false;
};

[[nodiscard]] LogContents parse_log(std::string_view text);

}  // namespace ckptfs
