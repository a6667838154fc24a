// SPDX-License-Identifier: Apache-2.0
// Names that every mount of a prefix agrees on.
//
// Everything mounts tell each other lies under `.ckptfs/` at the top of the prefix; it is hidden from listings and
// swept by `ckptfs gc`. A directory is a marker object whose key ends in '/', or is implied by any key below it.
//
//   .ckptfs/tmp/DIR/…/NAME     a file written out of order, before it has its name (staged/hidden_key.h)
//   .ckptfs/failed/DIR/NAME    a record: NAME in DIR could not be written (no commit over a failed sibling)
//   .ckptfs/mounts/UUID        heartbeat of a mount
//   .ckptfs/renames/UUID-…     the record of a directory's rename that is under way (fs/directory_marker.h)
//   .ckptfs/rename-names/UUID  what it moves
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

// A mount writes its objects below kUnsentPrefix anew this often. One that is older than kUnsentCountsFor is of a mount
// that has gone, or cannot reach the store: what it stands for may never come.
inline constexpr std::chrono::minutes kUnsentToldEvery{3};
inline constexpr std::chrono::minutes kUnsentCountsFor{15};

// Object key length limit of Amazon S3 ("Creating object key names"), in bytes of UTF-8.
inline constexpr std::size_t kMaxKeyBytes = 1024;
// NAME_MAX of Linux.
inline constexpr std::size_t kMaxNameBytes = 255;

// An object that is more than its bytes has a size with this remainder, so that a list tells by size alone that nearly
// all others are plain files. Odd, so that no file made of whole words, blocks or pages has it.
inline constexpr std::uint64_t kSizeMarkModulus = 4096;
inline constexpr std::uint64_t kSizeMarkRemainder = 3223;

[[nodiscard]] inline constexpr bool has_marked_size(std::uint64_t stored_size) {
    return stored_size % kSizeMarkModulus == kSizeMarkRemainder;
}

// The least such size that is not less.
[[nodiscard]] inline constexpr std::uint64_t next_marked_size(std::uint64_t least) {
    return least + (kSizeMarkModulus + kSizeMarkRemainder - least % kSizeMarkModulus) % kSizeMarkModulus;
}

}  // namespace ckptfs
