// SPDX-License-Identifier: Apache-2.0
// The index beside the data of a kept file: which version it is, and a record for each frame that is there.
//
// A record has the hash of the frame's bytes, and is written after them. So whatever a kill or a power cut leaves, a
// frame either has the hash of its record, or is treated as missing; nothing has to be flushed. The file is
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
    // Identifies the version among those of all stores.
    std::string identity;
    std::string store;
    std::string etag;

    // Begins with file_name_prefix(), as for all versions with this ETag.
    [[nodiscard]] std::string file_name() const;
    // `size`: of the file. Empty where the identity does not fit.
    [[nodiscard]] std::string header(std::uint64_t size) const;
    // Size of the file; empty if `header` is not that of this version.
    [[nodiscard]] std::optional<std::uint64_t> size_in(std::string_view header) const;
};

// Whether a version may have this file_name().
[[nodiscard]] bool is_file_name(std::string_view name);

// `store`: endpoint and bucket. Copies of what ckptfs wrote have the same version if they keep ETag and description.
// Empty if the object may be replaced by one that looks the same.
[[nodiscard]] std::optional<KeptVersion> kept_version(const std::string& store, const ObjectInfo& object,
                                                      bool is_encoded);

// A version that is kept, and what it is to be once its object is renamed.
struct KeptRename {
    KeptVersion from;
    KeptVersion to;
    // Size of the file.
    std::uint64_t size = 0;
};

// `header`: of a version that is kept. Empty if ckptfs did not write that, or it is not known to be this object's.
[[nodiscard]] std::optional<KeptRename> kept_rename(const std::string& store, std::string_view header,
                                                    const RenamedObject& object);

// Size of the file; empty if `header` is not that of any version.
[[nodiscard]] std::optional<std::uint64_t> size_in_header(std::string_view header);

// What the names of all versions with this ETag begin with.
[[nodiscard]] std::string file_name_prefix(const std::string& store, const std::string& etag);

[[nodiscard]] std::array<std::byte, kRecordSize> encode_record(std::uint64_t frame, std::uint64_t hash);
// The frame's hash; empty where there is no record, or half of one.
[[nodiscard]] std::optional<std::uint64_t> decode_record(std::uint64_t frame, ByteSpan record);

}  // namespace ckptfs
