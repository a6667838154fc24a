// SPDX-License-Identifier: Apache-2.0
// What mounts of a prefix have left below its .ckptfs/, heartbeats aside.
// Threads: blocks.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

enum class LeftoverKind : std::uint8_t {
    kUpload,
    // Objects below .ckptfs/.
    kFile,
    kFailureRecord,
    kRenameRecord,
    kRenameNames,
    // Of files that a disk has acknowledged.
    kUnsent,
};
[[nodiscard]] std::string_view name_of(LeftoverKind kind);

struct MountLeftover {
    LeftoverKind kind = LeftoverKind::kFile;
    ObjectInfo object;
    // Of a rename's record or names.
    std::string rename_id;
};

// Without objects whose keys no mount gives.
Result<std::vector<MountLeftover>> mount_leftovers(ObjectStore& store, const std::string& prefix);

// The renames that hide a directory below the prefix, by its marker. Lists all of it, a page at a time.
Result<std::set<std::string>> renames_with_markers(ObjectStore& store, const Clock& clock, const std::string& prefix);

}  // namespace ckptfs
