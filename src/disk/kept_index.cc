// SPDX-License-Identifier: Apache-2.0
#include "disk/kept_index.h"

#include <cstring>

#include "base/digest.h"
#include "base/little_endian.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/codec.h"

namespace ckptfs {

namespace {

// Changes with the layout of the file, and with what is hashed.
constexpr std::string_view kMagic = "ckptfs kept file 1\n";
// Tells a record from zeros, which a file system shows where nothing was written.
constexpr std::uint64_t kRecorded = 0x9E3779B97F4A7C15;

}  // namespace

std::string file_name_prefix(const std::string& store, const std::string& etag) {
    std::string text = store;
    // ETags hold no zero bytes.
    text.push_back('\0');
    return format("{:016x}-", xxh3(text + etag));
}

std::string KeptVersion::file_name() const {
    return file_name_prefix(store, etag) + hex(sha256(as_bytes(identity)));
}

std::string KeptVersion::header(std::uint64_t size) const {
    std::string text = format("{}{} {}\n", kMagic, kFrameSize, size) + identity;
    // It ends with a zero byte at least, and a hash.
    if (text.size() >= kIndexHeaderSize - sizeof(std::uint64_t)) {
        return {};
    }
    text.resize(kIndexHeaderSize - sizeof(std::uint64_t));
    std::array<std::byte, sizeof(std::uint64_t)> hash{};
    store_u64(hash.data(), xxh3(text));
    text += as_text(hash);
    return text;
}

std::optional<std::uint64_t> KeptVersion::size_in(std::string_view header) const {
    const std::string begin = format("{}{} ", kMagic, kFrameSize);
    const std::size_t end = header.find('\n', begin.size());
    if (!header.starts_with(begin) || end == std::string_view::npos) {
        return std::nullopt;
    }
    const auto size = whole_number<std::uint64_t>(header.substr(begin.size(), end - begin.size()));
    return size && this->header(*size) == header ? size : std::nullopt;
}

std::optional<KeptVersion> kept_version(const std::string& store, const ObjectInfo& object, bool is_encoded) {
    // ETags of some stores do not change with every overwrite. What ckptfs writes has an ID that does, and keeps it
    // where it is renamed by a single request.
    const auto id = object.metadata.find(kWriteIdMetadata);
    const bool has_id = id != object.metadata.end();
    if (object.etag.empty() || (!has_id && object.last_modified == WallTime{})) {
        return std::nullopt;
    }
    const std::string told_apart_by =
        has_id ? "write " + id->second
               : format("time {} {}", object.last_modified.time_since_epoch().count(), object.key);
    KeptVersion version{{}, store, object.etag};
    // Keys and ETags hold no zero bytes.
    for (const std::string& part : {store, object.etag, std::to_string(object.size), told_apart_by}) {
        version.identity += part;
        version.identity.push_back('\0');
    }
    version.identity += is_encoded ? "encoded" : "plain";
    return version;
}

std::array<std::byte, kRecordSize> encode_record(std::uint64_t frame, std::uint64_t hash) {
    std::array<std::byte, kRecordSize> record{};
    store_u64(record.data(), hash);
    store_u64(record.data() + sizeof hash, hash ^ (kRecorded + frame));
    return record;
}

std::optional<std::uint64_t> decode_record(std::uint64_t frame, ByteSpan record) {
    if (record.size() < kRecordSize) {
        return std::nullopt;
    }
    const std::uint64_t hash = load_u64(record.data());
    const bool is_recorded = load_u64(record.data() + sizeof hash) == (hash ^ (kRecorded + frame));
    return is_recorded ? std::optional(hash) : std::nullopt;
}

}  // namespace ckptfs
