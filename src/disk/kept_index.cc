// SPDX-License-Identifier: Apache-2.0
#include "disk/kept_index.h"

#include <cstring>
#include <utility>
#include <vector>

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
// Parts of an identity: store, ETag, size, what else distinguishes it, and kEncoded or kPlain.
constexpr std::size_t kIdentityParts = 5;
constexpr std::string_view kByWriteId = "write ";
constexpr std::string_view kEncoded = "encoded";
constexpr std::string_view kPlain = "plain";
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

bool is_file_name(std::string_view name) {
    constexpr std::size_t kPrefix = 16;
    constexpr std::size_t kHash = 2 * sizeof(Sha256);
    constexpr std::string_view kDigits = "0123456789abcdef";
    return name.size() == kPrefix + 1 + kHash && name[kPrefix] == '-' &&
           name.substr(0, kPrefix).find_first_not_of(kDigits) == std::string_view::npos &&
           name.substr(kPrefix + 1).find_first_not_of(kDigits) == std::string_view::npos;
}

std::string KeptVersion::header(std::uint64_t size) const {
    std::string text = format("{}{} {}\n", kMagic, kFrameSize, size) + identity;
    // At least one zero byte follows, and a hash.
    if (text.size() >= kIndexHeaderSize - sizeof(std::uint64_t)) {
        return {};
    }
    text.resize(kIndexHeaderSize - sizeof(std::uint64_t));
    std::array<std::byte, sizeof(std::uint64_t)> hash{};
    store_u64(hash.data(), xxh3(text));
    text += as_text(hash);
    return text;
}

std::optional<std::uint64_t> size_in_header(std::string_view header) {
    const std::string begin = format("{}{} ", kMagic, kFrameSize);
    const std::size_t end = header.find('\n', begin.size());
    if (!header.starts_with(begin) || end == std::string_view::npos || header.size() != kIndexHeaderSize) {
        return std::nullopt;
    }
    const std::string_view hashed = header.substr(0, kIndexHeaderSize - sizeof(std::uint64_t));
    const std::uint64_t hash = load_u64(as_bytes(header.substr(hashed.size())).data());
    const auto size = whole_number<std::uint64_t>(header.substr(begin.size(), end - begin.size()));
    return hash == xxh3(hashed) ? size : std::nullopt;
}

std::optional<std::uint64_t> KeptVersion::size_in(std::string_view header) const {
    const std::optional<std::uint64_t> size = size_in_header(header);
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
        has_id ? std::string(kByWriteId) + id->second
               : format("time {} {}", object.last_modified.time_since_epoch().count(), object.key);
    KeptVersion version{{}, store, object.etag};
    // Keys and ETags hold no zero bytes.
    for (const std::string& part : {store, object.etag, std::to_string(object.size), told_apart_by}) {
        version.identity += part;
        version.identity.push_back('\0');
    }
    version.identity += is_encoded ? kEncoded : kPlain;
    return version;
}

std::optional<KeptRename> kept_rename(const std::string& store, std::string_view header, const RenamedObject& object) {
    const std::size_t line = header.find('\n', kMagic.size());
    if (!header.starts_with(kMagic) || line == std::string_view::npos) {
        return std::nullopt;
    }
    // Zeros and a hash follow.
    const std::string_view rest = header.substr(line + 1);
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (std::size_t end = rest.find('\0'); parts.size() < kIdentityParts && end != std::string_view::npos;
         end = rest.find('\0', begin)) {
        parts.emplace_back(rest.substr(begin, end - begin));
        begin = end + 1;
    }
    if (parts.size() < kIdentityParts || parts[0] != store || parts[1] != object.etag ||
        parts[2] != std::to_string(object.size) || !parts[3].starts_with(kByWriteId)) {
        return std::nullopt;
    }
    const std::string write_id = parts[3].substr(kByWriteId.size());
    if (!object.copy_write_id.empty() && object.write_id != write_id) {
        return std::nullopt;
    }
    ObjectInfo described;
    described.etag = object.etag;
    described.size = object.size;
    described.metadata[kWriteIdMetadata] = write_id;
    const bool is_encoded = parts[4] == kEncoded;
    std::optional<KeptVersion> from = kept_version(store, described, is_encoded);
    described.etag = object.copy_etag;
    described.metadata[kWriteIdMetadata] = object.copy_write_id.empty() ? write_id : object.copy_write_id;
    std::optional<KeptVersion> to = kept_version(store, described, is_encoded);
    const std::optional<std::uint64_t> size = from ? from->size_in(header) : std::nullopt;
    return size && to ? std::optional(KeptRename{std::move(*from), std::move(*to), *size}) : std::nullopt;
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
