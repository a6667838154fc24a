// SPDX-License-Identifier: Apache-2.0
// Which objects below the destination are copies that a rename has made: they go when it is undone. All else is what
// other mounts have saved there, acknowledged, before the destination was hidden or with what they knew of it then.
//
// A copy in parts says whose it is in its `ckptfs-write`; one by a single request has that of its source, which every
// save gives anew. What cannot be told is taken for another's: a copy that is left behind has its source still, and a
// save that is deleted has nothing.
//
// Threads: block.
#pragma once

#include <vector>

#include "ckptfs/object_store.h"
#include "fs/directory_marker.h"
#include "fs/tree_copy.h"

namespace ckptfs::fs {

// What is known of a rename that is undone.
struct RenameFacts {
    const DirectoryMarker& rename;
    // As it was written; a name that was changed meanwhile is there once for each of its versions, the last one last.
    const std::vector<MovedName>& names;
    // Of the process that has made them; empty in another.
    const Copies& copies;
};

// Of `destination` and `source`, as they were listed: those of `destination` that are copies.
Result<std::vector<ObjectInfo>> copies_among(ObjectStore& store, const RenameFacts& facts,
                                             const std::vector<ObjectInfo>& destination,
                                             const std::vector<ObjectInfo>& source);

// Another mount's copy of the same bytes may have the same ETag.
Result<bool> is_copy(ObjectStore& store, const ObjectInfo& object, const Copied& copied);

}  // namespace ckptfs::fs
