// SPDX-License-Identifier: Apache-2.0
// A page of the store's listing, with the changes that it does not show yet.
//
// The changes are taken before the store is asked: a change made meanwhile shows in at least one of the two. A page
// covers the keys from where the last one ended; its continuation token carries that place before the store's own
// token.
//
// Ownership: `unsent` and `store` outlive it. Threads: as ObjectStore::list().
#pragma once

#include "ckptfs/object_store.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

// The page may hold more than max_keys entries.
void list_merged(ObjectStore& store, const UnsentChanges& unsent, ListRequest request, StoreDone<ListResponse> done);

}  // namespace ckptfs
