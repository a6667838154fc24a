// SPDX-License-Identifier: Apache-2.0
// Which objects below the destination are copies that a rename has made: they go when it is undone. All else is what
// other mounts have saved there, acknowledged, before the destination was hidden or with what they knew of it then.
//
// A copy in parts says whose it is in its `ckptfs-write`; one by a single request has that of its source, which every
// save gives anew. Once that source is replaced or gone, its copy cannot be told from the file that another mount has
// renamed there or saved: it is in doubt, to be neither deleted nor shown. So is a file saved in the same second as its
// source, except to the process that saw the store refuse its copy there.
//
// Threads: block.
#pragma once

#include <vector>

#include "ckptfs/object_store.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs::fs {

// What is known of a rename that is being undone.
struct RenameFacts {
    const DirectoryMarker& rename;
    // The rename's list of names; a name that was changed meanwhile is there once for each of its versions, the last
    // one last.
    const std::vector<MovedName>& names;
    // The copies that this process has made; empty if another process made them.
    const OwnCopies& own;
    // By the store's clock: when the destination's marker was written, before the first copy.
    WallTime hidden_since{};
    // The record is gone. The marker may then be one that the store wrote after the rename was finished: what is older
    // than the marker was not copied behind it, and stays.
    bool lacks_record = false;
};

// What lies below the destination, as it was listed.
struct SortedObjects {
    std::vector<ObjectInfo> copies;
    std::vector<ObjectInfo> in_doubt;
    bool has_others = false;
};

// `destination` and `source`: what lies below the two directories, as it was listed.
Result<SortedObjects> sort_by_origin(ObjectStore& store, const RenameFacts& facts,
                                     const std::vector<ObjectInfo>& destination, const std::vector<ObjectInfo>& source);

// The copies that an earlier attempt has made of some of `objects`, by source key. EBUSY if an object that has one of
// their names below the destination may be another file.
Result<Copies> copies_there(ObjectStore& store, const DirectoryMarker& rename, const std::vector<ObjectInfo>& objects);

// Whether `object` is the copy `copied`: another mount's copy of the same bytes may have the same ETag.
Result<bool> is_copy(ObjectStore& store, const ObjectInfo& object, const Copied& copied);

}  // namespace ckptfs::fs
