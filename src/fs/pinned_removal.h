// SPDX-License-Identifier: Apache-2.0
// Removals of one version, so that a request that lands late, or twice, spares what was committed meanwhile.
//
// Stores that ignore conditional deletes remove what is there. Threads: blocks; for the blocking executor.
#pragma once

#include <optional>
#include <string>

#include "ckptfs/object_store.h"

namespace ckptfs::fs {

// Of what is there. Empty where the store tells it nowhere, not in its lists either, as some tell it there alone.
Result<std::optional<std::string>> current_etag(ObjectStore& store, const std::string& key);
// As a list shows it; nothing in it where it does not show the key.
Result<ObjectInfo> listed_object(ObjectStore& store, const std::string& key);
Result<std::string> listed_etag(ObjectStore& store, const std::string& key);

// Removes only this version; success also where another one is there, or none.
Status remove_version(ObjectStore& store, const RemoveRequest& version);

// What is there now. `known`: the version that is thought to be there; empty where none is known.
Status remove_current(ObjectStore& store, const std::string& key, const std::string& known);

}  // namespace ckptfs::fs
