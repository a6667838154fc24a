// SPDX-License-Identifier: Apache-2.0
// Copies and deletes everything below a key prefix, many keys at once.
// Threads: blocks; for the blocking executor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "fs/nodes.h"

namespace ckptfs {

Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, const std::string& prefix);

// Source key -> the version its copy has. On failure the copies made are removed again.
Result<std::map<std::string, ObjectVersion>> copy_tree(ObjectStore& store, const std::vector<ObjectInfo>& sources,
                                                       const std::string& old_prefix, const std::string& new_prefix);

// Deletes in batches of 1,000; the first key that could not be deleted is named in the error.
Status remove_all(ObjectStore& store, const std::vector<std::string>& keys);

}  // namespace ckptfs
