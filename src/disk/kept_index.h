// SPDX-License-Identifier: Apache-2.0
// What lies beside the data of a kept file: which version it is, and a record for each frame that is there.
//
// A record says what the frame's bytes hash to, and is written after them. So whatever a kill or a power cut leaves, a
// frame is either recorded and hashes to its record, or is taken for missing; nothing has to be flushed. The file is
// kIndexHeaderSize bytes, the same for every process that keeps this version, and kRecordSize bytes a frame.
//
// Pure functions; safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/bytes.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

inline constexpr std::size_t kIndexHeaderSize = 4096;
inline constexpr std::size_t kRecordSize = 16;

struct KeptVersion {
    // Names the version among those of all stores.
    std::string identity;
    std::string store;
    std::string etag;

    // Begins as those of all versions with this ETag do.
    [[nodiscard]] std::string file_name() const;
    // `size`: of the file. Empty where the identity does not fit.
    [[nodiscard]] std::string header(std::uint64_t size) const;
    // The size; empty where it is not the header of this version.
    [[nodiscard]] std::optional<std::uint64_t> size_in(std::string_view header) const;
};

// Whether a version may have this file_name().
[[nodiscard]] bool is_file_name(std::string_view name);

// `store`: endpoint and bucket. Of what ckptfs wrote it is the same for copies that keep ETag and description. Empty
// where the object may be replaced by one that looks the same.
[[nodiscard]] std::optional<KeptVersion> kept_version(const std::string& store, const ObjectInfo& object,
                                                      bool is_encoded);

// A version that is kept, and what it is to be once its object is renamed.
struct KeptRename {
    KeptVersion from;
    KeptVersion to;
    // Of the file.
    std::uint64_t size = 0;
};

// `header`: of a version that is kept. Empty where it is not one that ckptfs wrote, or not known to be this object's.
[[nodiscard]] std::optional<KeptRename> kept_rename(const std::string& store, std::string_view header,
                                                    const RenamedObject& object);

// Of the file; empty where it is not the header of any version.
[[nodiscard]] std::optional<std::uint64_t> size_in_header(std::string_view header);

// What the names of all versions with this ETag begin with.
[[nodiscard]] std::string file_name_prefix(const std::string& store, const std::string& etag);

[[nodiscard]] std::array<std::byte, kRecordSize> encode_record(std::uint64_t frame, std::uint64_t hash);
// The frame's hash; empty where there is no record, or half of one.
[[nodiscard]] std::optional<std::uint64_t> decode_record(std::uint64_t frame, ByteSpan record);

}  // namespace ckptfs
