// SPDX-License-Identifier: Apache-2.0
// What a rename of a directory writes into the bucket, to the byte as ckptfs-format(5) says. Pure functions.
//
// A marker hides its directory on every mount: the destination while it is filled (pending), then the source while it
// is emptied (moved). Both have one fixed size, by which a list of the directory tells them from other objects. The
// record of the rename has the same layout; it decides whether the rename took effect, and its age shows whether a
// process still works on it. The list of names says which keys the rename moves.
//
// A marker that a rename writes for a directory that was there before says so in its metadata, with the time at which
// the directory was made: otherwise the directory would seem to be new, and what had failed in it before would no
// longer count (commit_policy.h).
//
// What is parsed here comes from a bucket and may hold anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs::fs {

enum class MarkerState : std::uint8_t {
    // States of a marker.
    kPending = 1,
    kMoved = 2,
    // States of a record.
    kCopying = 3,
    kCommitted = 4,
    kRollingBack = 5,
};

struct DirectoryMarker {
    MarkerState state = MarkerState::kPending;
    // The destination was there, as an empty directory.
    bool replaces_empty_directory = false;
    // The source had no marker object; of kMoved only.
    bool source_was_implied = false;
    // Prefix of the mount that renames; `source` and `destination` begin with it.
    std::string prefix;
    // Keys that end in '/'.
    std::string source;
    std::string destination;
    // UUIDs of the rename and of its last writer.
    std::string rename_id;
    std::string writer_id;
    // When this was written, by the writer's clock, to the millisecond; for people, and so that no two writes are
    // alike.
    WallTime written{};
};

inline constexpr std::size_t kDirectoryMarkerSize = 3211;

// A directory with a marker object of this size is hidden until the object has been read.
[[nodiscard]] constexpr bool may_hide_directory(std::uint64_t marker_size) {
    return marker_size == kDirectoryMarkerSize;
}

[[nodiscard]] std::string encode_marker(const DirectoryMarker& marker);
// Empty for other bytes, and for keys that no rename could have: outside the prefix, in the control directory, one
// within the other.
[[nodiscard]] std::optional<DirectoryMarker> parse_marker(std::string_view bytes);

// User metadata of a marker: when its directory was made, in milliseconds since 1970 by the store's clock.
inline constexpr const char* kMadeMetadata = "ckptfs-made";
[[nodiscard]] std::string made_text(WallTime made);
// When a directory was made, by its marker object, whatever its state. The epoch: not known, long ago.
[[nodiscard]] WallTime directory_made(const ObjectInfo& marker);

// Whether the marker belongs at this key.
[[nodiscard]] bool marks(const DirectoryMarker& marker, std::string_view key);

// Keys of the record and of the list of names of this rename.
[[nodiscard]] std::string record_key(const DirectoryMarker& marker);
[[nodiscard]] std::string names_key(const DirectoryMarker& marker);

// The two directories that a rename may hide, by path_hash(), as the key of its record gives them; recorded_paths() is
// empty for other keys.
struct RecordedPaths {
    std::uint64_t source = 0;
    std::uint64_t destination = 0;
};
[[nodiscard]] std::optional<RecordedPaths> recorded_paths(std::string_view prefix, std::string_view record_key);
// XXH64 of a directory's key.
[[nodiscard]] std::uint64_t path_hash(std::string_view directory_key);

// One of the files that a rename moves.
struct MovedName {
    // Its key, relative to the directory.
    std::string name;
    // ETag of the version that is copied; empty if the store gives none.
    std::string etag;

    friend bool operator==(const MovedName&, const MovedName&) = default;
};

[[nodiscard]] std::string encode_names(const std::vector<MovedName>& names);
[[nodiscard]] std::optional<std::vector<MovedName>> parse_names(std::string_view bytes);

}  // namespace ckptfs::fs
