// SPDX-License-Identifier: Apache-2.0
// Removals of one version, so that a request that lands late, or twice, spares what was committed meanwhile.
//
// Stores that ignore conditional deletes remove what is there. Threads: blocks; for the blocking executor.
#pragma once

#include <optional>
#include <string>

#include "ckptfs/object_store.h"

namespace ckptfs::fs {

// The ETag of the object under the key; absent if there is no object. If the reply to HEAD has none, a listing is
// asked, as some stores give it only there; an empty string if that has none either.
Result<std::optional<std::string>> current_etag(ObjectStore& store, const std::string& key);
// The object as a listing shows it; an empty ObjectInfo if the listing does not show the key.
Result<ObjectInfo> listed_object(ObjectStore& store, const std::string& key);
Result<std::string> listed_etag(ObjectStore& store, const std::string& key);

// Removes only this version; success also where another one is there, or none.
Status remove_version(ObjectStore& store, const RemoveRequest& version);

// Removes the version that is there now. `known`: ETag of the version expected there; empty if none is known. `clock`
// shows the store's time: what another client has saved after an attempt that may have removed the version stays.
Status remove_current(ObjectStore& store, const Clock& clock, const std::string& key, const std::string& known);

}  // namespace ckptfs::fs
