// SPDX-License-Identifier: Apache-2.0
#include "writeback/unsent_change.h"

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/json_line.h"
#include "base/little_endian.h"

namespace ckptfs {
namespace {

constexpr std::size_t kHeaderSize = 8;
constexpr std::uint32_t kBeginsBatch = std::uint32_t{1} << 31;
constexpr std::size_t kSentMembers = 4;
constexpr std::size_t kGivenUpMembers = 3;

// Bytes, not text: names and values need not be UTF-8, and CBOR's strings are read back as they were written.
Json json_of(const std::map<std::string, std::string>& members) {
    Json json = Json::array();
    for (const auto& [name, value] : members) {
        json.push_back(name);
        json.push_back(value);
    }
    return json;
}

std::map<std::string, std::string> members_of(const Json& json) {
    std::map<std::string, std::string> members;
    for (std::size_t i = 0; i + 1 < json.size(); i += 2) {
        members.emplace(json.at(i).get<std::string>(), json.at(i + 1).get<std::string>());
    }
    return members;
}

// Nanoseconds.
std::int64_t count_of(WallTime time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
WallTime time_of(const Json& json) {
    return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(json.get<std::int64_t>())));
}

Json json_of(const ObjectInfo& object) {
    return Json::array({object.key, object.size, object.etag, count_of(object.last_modified), json_of(object.metadata),
                        object.content_type, object.content_encoding, object.storage_class,
                        json_of(object.other_headers)});
}

ObjectInfo object_of(const Json& json) {
    ObjectInfo object;
    object.key = json.at(0).get<std::string>();
    object.size = json.at(1).get<std::uint64_t>();
    object.etag = json.at(2).get<std::string>();
    object.last_modified = time_of(json.at(3));
    object.metadata = members_of(json.at(4));
    object.content_type = json.at(5).get<std::string>();
    object.content_encoding = json.at(6).get<std::string>();
    object.storage_class = json.at(7).get<std::string>();
    object.other_headers = members_of(json.at(8));
    return object;
}

Json json_of(const BodyPiece& piece) {
    switch (piece.place) {
        case BodyPiece::Place::kInline:
            return Json::array({"i", piece.bytes});
        case BodyPiece::Place::kFile:
            return Json::array({"f", piece.size, piece.file, piece.offset, piece.checksums});
        case BodyPiece::Place::kObject:
            break;
    }
    return Json::array({piece.is_whole ? "w" : "o", piece.size, piece.key, piece.etag, piece.offset});
}

BodyPiece piece_of(const Json& json) {
    BodyPiece piece;
    const auto place = json.at(0).get<std::string>();
    if (place == "i") {
        piece.bytes = json.at(1).get<std::string>();
        piece.size = piece.bytes.size();
        return piece;
    }
    piece.size = json.at(1).get<std::uint64_t>();
    if (place == "f") {
        piece.place = BodyPiece::Place::kFile;
        piece.file = json.at(2).get<std::uint64_t>();
        piece.offset = json.at(3).get<std::uint64_t>();
        piece.checksums = json.at(4).get<std::vector<std::uint32_t>>();
    } else {
        piece.place = BodyPiece::Place::kObject;
        piece.is_whole = place == "w";
        piece.key = json.at(2).get<std::string>();
        piece.etag = json.at(3).get<std::string>();
        piece.offset = json.at(4).get<std::uint64_t>();
    }
    return piece;
}

constexpr unsigned kDescribed = 1;
constexpr unsigned kIfNoneMatch = 2;
constexpr unsigned kBarrier = 4;
constexpr unsigned kFollowsUnsent = 8;

Json json_of(const UnsentChange& change) {
    Json body = Json::array();
    for (const BodyPiece& piece : change.body) {
        body.push_back(json_of(piece));
    }
    const unsigned flags = (change.is_described ? kDescribed : 0U) | (change.if_none_match ? kIfNoneMatch : 0U) |
                           (change.is_barrier ? kBarrier : 0U) | (change.follows_unsent ? kFollowsUnsent : 0U);
    return Json::array({change.number, static_cast<int>(change.kind), flags, json_of(change.object), body,
                        change.source_key, change.source_etag, change.if_match, change.announcement, change.awaited});
}

Json json_of(const SentChange& sent) {
    return Json::array({sent.number, sent.key, sent.acknowledged_etag, sent.etag});
}

Json json_of(const GivenUpChange& given_up) {
    return Json::array({given_up.number, given_up.key, count_of(given_up.since)});
}

// Throws what the JSON library throws.
UnsentChange change_of(const Json& json) {
    UnsentChange change;
    change.number = json.at(0).get<std::uint64_t>();
    change.kind = static_cast<UnsentChange::Kind>(json.at(1).get<std::uint8_t>());
    const auto flags = json.at(2).get<unsigned>();
    change.is_described = (flags & kDescribed) != 0;
    change.if_none_match = (flags & kIfNoneMatch) != 0;
    change.is_barrier = (flags & kBarrier) != 0;
    change.follows_unsent = (flags & kFollowsUnsent) != 0;
    change.object = object_of(json.at(3));
    for (const Json& piece : json.at(4)) {
        change.body.push_back(piece_of(piece));
    }
    change.source_key = json.at(5).get<std::string>();
    change.source_etag = json.at(6).get<std::string>();
    change.if_match = json.at(7).get<std::string>();
    change.announcement = json.at(8).get<std::string>();
    change.awaited = json.at(9).get<std::vector<std::uint64_t>>();
    return change;
}

std::optional<LogEntry> decode_entry(std::string_view cbor) {
    const Json json = Json::from_cbor(cbor.begin(), cbor.end(), true, false);
    if (!json.is_array() || has_fractions(json)) {
        return std::nullopt;
    }
    // An entry may be of another form although its checksum is valid.
    try {
        if (json.size() == kSentMembers) {
            return SentChange{json.at(0).get<std::uint64_t>(), json.at(1).get<std::string>(),
                              json.at(2).get<std::string>(), json.at(3).get<std::string>()};
        }
        if (json.size() == kGivenUpMembers) {
            return GivenUpChange{json.at(0).get<std::uint64_t>(), json.at(1).get<std::string>(), time_of(json.at(2))};
        }
        UnsentChange change = change_of(json);
        return change.kind > UnsentChange::Kind::kRemove ? std::nullopt : std::optional<LogEntry>(std::move(change));
    } catch (const Json::exception&) {
        return std::nullopt;
    }
}

// Size of the entry at `at` with its header; 0 if it is cut off.
std::size_t size_at(std::string_view text, std::size_t at) {
    if (text.size() - at < kHeaderSize) {
        return 0;
    }
    const std::size_t size = kHeaderSize + (load_u32(text.data() + at) & ~kBeginsBatch);
    return text.size() - at < size ? 0 : size;
}

// Content of the entry at `at`; empty if that is cut off or damaged.
std::optional<std::string_view> content_at(std::string_view text, std::size_t at) {
    const std::size_t size = size_at(text, at);
    if (size == 0) {
        return std::nullopt;
    }
    const std::string_view content = text.substr(at + kHeaderSize, size - kHeaderSize);
    const bool is_whole = crc32c(as_bytes(content)) == load_u32(text.data() + at + sizeof(std::uint32_t));
    return is_whole ? std::optional(content) : std::nullopt;
}

std::optional<LogEntry> entry_at(std::string_view text, std::size_t at) {
    const std::optional<std::string_view> content = content_at(text, at);
    return content ? decode_entry(*content) : std::nullopt;
}

// Whether a whole entry that begins a batch is at `at`: all before it was flushed. Bytes of other content, as of a body
// that lies in the log, could look like an empty entry, eight zero bytes except for that bit: so it must decode, too.
bool begins_batch(std::string_view text, std::size_t at) {
    return size_at(text, at) > kHeaderSize && (load_u32(text.data() + at) & kBeginsBatch) != 0 &&
           entry_at(text, at).has_value();
}

}  // namespace

bool has_unsent(const std::vector<LogEntry>& entries) {
    std::set<std::uint64_t> unsent;
    for (const LogEntry& entry : entries) {
        if (std::holds_alternative<UnsentChange>(entry)) {
            unsent.insert(number_of(entry));
        } else {
            unsent.erase(number_of(entry));
        }
    }
    return !unsent.empty();
}

std::string encode_entry(const LogEntry& entry) {
    const std::vector<std::uint8_t> cbor =
        Json::to_cbor(std::visit([](const auto& one) { return json_of(one); }, entry));
    std::string text(kHeaderSize, '\0');
    text.append(cbor.begin(), cbor.end());
    const std::string_view content = std::string_view(text).substr(kHeaderSize);
    store_u32(text.data(), static_cast<std::uint32_t>(content.size()));
    store_u32(text.data() + sizeof(std::uint32_t), crc32c(as_bytes(content)));
    return text;
}

void begin_batch(std::string& entries) {
    store_u32(entries.data(), load_u32(entries.data()) | kBeginsBatch);
}

LogContents parse_log(std::string_view text) {
    LogContents contents;
    while (std::optional<LogEntry> entry = entry_at(text, contents.whole)) {
        contents.entries.push_back(std::move(*entry));
        contents.whole += size_at(text, contents.whole);
    }
    // Not zeros, which a power cut may leave: their checksum is valid, but they have no content.
    contents.is_foreign = size_at(text, contents.whole) > kHeaderSize && content_at(text, contents.whole).has_value();
    // At any offset: the damage may be in a length.
    for (std::size_t at = contents.whole + 1; at < text.size() && !contents.is_damaged_inside; ++at) {
        contents.is_damaged_inside = begins_batch(text, at);
    }
    return contents;
}

}  // namespace ckptfs
