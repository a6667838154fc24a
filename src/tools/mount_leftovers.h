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
    // From here on: objects below .ckptfs/.
    kFile,
    kFailureRecord,
    kRenameRecord,
    kRenameNames,
    // Record of files that a disk has acknowledged.
    kUnsent,
};
[[nodiscard]] std::string_view name_of(LeftoverKind kind);

struct MountLeftover {
    LeftoverKind kind = LeftoverKind::kFile;
    ObjectInfo object;
    // Set for a rename's record or names.
    std::string rename_id;
};

// What is there of these kinds below the prefix, except kUpload. Objects whose keys no mount would give are left out.
Result<std::vector<MountLeftover>> mount_leftovers(ObjectStore& store, const std::string& prefix);

// IDs of the renames that hide a directory below the prefix, from the directories' markers. Lists the whole prefix, a
// page at a time.
Result<std::set<std::string>> renames_with_markers(ObjectStore& store, const Clock& clock, const std::string& prefix);

}  // namespace ckptfs
