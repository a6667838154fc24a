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
#include "fs/objects/delete_conditions.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/object_copy.h"

namespace ckptfs::fs {

// Calls `page` for each page of the listing, until it fails.
Status for_each_page(ObjectStore& store, const std::string& prefix,
                     const std::function<Status(std::vector<ObjectInfo>& objects)>& page);
// `pages`: set to the number of pages, unless it is null.
Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, const std::string& prefix, int* pages = nullptr);

// Whether a rename's work may go on, as another mount may have taken the rename over. Called on any thread.
using MayGoOn = std::function<bool()>;

// Copies by the keys of their sources.
using Copies = std::map<std::string, Copied>;

// What a process knows of the copies that it makes.
struct OwnCopies {
    Copies made;
    // Neither this process nor another has begun to make copies.
    bool none_begun = false;
    // Source keys whose new names hold, for certain, what another mount has saved there.
    std::set<std::string> saved_by_others = {};
    // A request got no answer: the store may still carry it out.
    bool may_come_late = false;
};

// Files called `last_names` are copied when all others are: a process may see single files of the destination, by what
// it has looked up before. Adds to `own` what was copied, also where it fails. A source that is replaced or removed
// meanwhile is left out. Stops when `may_go_on` says no. EBUSY where another mount has saved a file that would be
// replaced.
Status copy_tree(ObjectStore& store, const std::vector<ObjectInfo>& sources, const DirectoryMarker& rename,
                 const MayGoOn& may_go_on, OwnCopies& own, const std::vector<std::string>& last_names = {});

// Deletes in batches of 1,000; the first key that could not be deleted is named in the error. If a request names a
// version and another one is there, that one stays.
Status remove_all(ObjectStore& store, const std::vector<RemoveRequest>& requests);
// As above, but nothing more is sent once `may_go_on` returns false: copies of the same bytes have the same ETag, so
// that a late removal of one would take the one that another mount has made since.
Status remove_all(ObjectStore& store, std::vector<RemoveRequest> requests, const MayGoOn& may_go_on);

// How a process deletes for a rename: it may be stopped before its deletes while other mounts go on.
struct RemovalTerms {
    DeletePins pins = DeletePins::kUnknown;
    // Whether the process still holds the record.
    MayGoOn may_go_on;
};

// Deletes these versions: in batches with their ETags if the store honours that, by key alone if it does not, and one
// by one if it is not known.
Status remove_versions(ObjectStore& store, std::vector<RemoveRequest> versions, const RemovalTerms& terms);

}  // namespace ckptfs::fs
