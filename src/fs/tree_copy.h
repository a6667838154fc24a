// SPDX-License-Identifier: Apache-2.0
// Copies and deletes everything below a key prefix, many keys at once.
// Threads: blocks; for the blocking executor.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "fs/delete_conditions.h"
#include "fs/directory_marker.h"
#include "fs/object_copy.h"

namespace ckptfs::fs {

// Until `page` fails.
Status for_each_page(ObjectStore& store, const std::string& prefix,
                     const std::function<Status(std::vector<ObjectInfo>& objects)>& page);
// `pages`: how many it took.
Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, const std::string& prefix, int* pages = nullptr);

// Whether what is under way for a rename may go on, asked on any thread: another mount may have taken the rename over.
using MayGoOn = std::function<bool()>;

// By source key.
using Copies = std::map<std::string, Copied>;

// What a process knows of the copies that it makes.
struct OwnCopies {
    Copies made;
    // It has not begun to make any, nor has another.
    bool none_begun = false;
    // Source keys: under the new name is what another mount has saved there, for certain.
    std::set<std::string> saved_by_others = {};
};

// Adds to `own` what was copied, also where it fails. A source that is replaced or removed meanwhile is left out.
// Stops when `may_go_on` says no. EBUSY where another mount has saved a file that would be replaced.
Status copy_tree(ObjectStore& store, const std::vector<ObjectInfo>& sources, const DirectoryMarker& rename,
                 const MayGoOn& may_go_on, OwnCopies& own);

// Deletes in batches of 1,000; the first key that could not be deleted is named in the error. Where another version has
// the place of one that is meant, it stays.
Status remove_all(ObjectStore& store, const std::vector<RemoveRequest>& requests);
// Nothing more is sent once `may_go_on` says no: the ETags of copies of the same bytes are the same, so that a late
// removal of one would take the one that another mount has made since.
Status remove_all(ObjectStore& store, std::vector<RemoveRequest> requests, const MayGoOn& may_go_on);

// How a process deletes that may be stopped before its deletes while others go on.
struct RemovalTerms {
    DeletePins pins = DeletePins::kUnknown;
    // It holds the record still.
    MayGoOn may_go_on;
};

// Each names the version that is meant: in batches that say so where the store honours that, by name alone where it
// does not, and one by one where it is not known.
Status remove_versions(ObjectStore& store, std::vector<RemoveRequest> versions, const RemovalTerms& terms);

}  // namespace ckptfs::fs
