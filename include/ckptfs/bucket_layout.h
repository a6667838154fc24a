// SPDX-License-Identifier: Apache-2.0
// Names that every mount of a prefix agrees on.
//
// Everything mounts tell each other lies under `.ckptfs/` at the top of the prefix; it is hidden from listings and
// swept by `ckptfs gc`. A directory is a marker object whose key ends in '/', or is implied by any key below it.
//
//   .ckptfs/tmp/DIR/…/NAME     a file written out of order, before it has its name (staged/hidden_key.h)
//   .ckptfs/failed/DIR/NAME    a record: NAME in DIR could not be written (no commit over a failed sibling)
//   .ckptfs/mounts/UUID        heartbeat of a mount
//   .ckptfs/renames/UUID-…     the record of a directory rename that is under way (fs/objects/directory_marker.h)
//   .ckptfs/rename-names/UUID  the keys that it moves
//   .ckptfs/unsent/DIR/…       a mount has files in DIR that are not in the bucket yet (writeback/announcements.h)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckptfs {

inline constexpr std::string_view kControlDirectory = ".ckptfs";
inline constexpr std::string_view kTemporaryPrefix = ".ckptfs/tmp/";
inline constexpr std::string_view kFailedPrefix = ".ckptfs/failed/";
inline constexpr std::string_view kMountsPrefix = ".ckptfs/mounts/";
inline constexpr std::string_view kRenamesPrefix = ".ckptfs/renames/";
inline constexpr std::string_view kRenameNamesPrefix = ".ckptfs/rename-names/";
inline constexpr std::string_view kUnsentPrefix = ".ckptfs/unsent/";

// A mount rewrites its objects below kUnsentPrefix this often. If one is older than kUnsentCountsFor, its mount has
// gone or cannot reach the store, and the files that it announces may never arrive.
inline constexpr std::chrono::minutes kUnsentToldEvery{3};
inline constexpr std::chrono::minutes kUnsentCountsFor{15};

// Object key length limit of Amazon S3 ("Creating object key names"), in bytes of UTF-8.
inline constexpr std::size_t kMaxKeyBytes = 1024;
// NAME_MAX of Linux.
inline constexpr std::size_t kMaxNameBytes = 255;

// Objects that are not simply the bytes of a file (containers, symbolic links) are padded to a size with this
// remainder, so that a listing shows by size alone that nearly all other objects are plain files. Odd, so that no file
// made of whole words, blocks or pages has such a size.
inline constexpr std::uint64_t kSizeMarkModulus = 4096;
inline constexpr std::uint64_t kSizeMarkRemainder = 3223;

[[nodiscard]] inline constexpr bool has_marked_size(std::uint64_t stored_size) {
    return stored_size % kSizeMarkModulus == kSizeMarkRemainder;
}

// The smallest marked size that is at least `least`.
[[nodiscard]] inline constexpr std::uint64_t next_marked_size(std::uint64_t least) {
    return least + (kSizeMarkModulus + kSizeMarkRemainder - least % kSizeMarkModulus) % kSizeMarkModulus;
}

}  // namespace ckptfs
