// SPDX-License-Identifier: Apache-2.0
// The bucket as the mount sees it, for changes that are made there at once and not acknowledged by the disk: those that
// other mounts must see in steps, as the rename of a directory.
//
// Only for keys without unsent changes, which would undo it.
//
// Ownership: store and `unsent` outlive it. Threads: as ObjectStore.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/forwarding_store.h"
#include "ckptfs/object_store.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

class WriteThrough final : public ForwardingStore {
public:
    WriteThrough(ObjectStore& store, const UnsentChanges& unsent) : ForwardingStore(store), unsent_(unsent) {}

    void get(GetRequest request, StoreDone<GetResponse> done) override {
        request.if_match = unsent_.etag_there(request.key, request.if_match);
        ForwardingStore::get(std::move(request), std::move(done));
    }
    void put(PutRequest request, StoreDone<PutResponse> done) override {
        request.if_match = unsent_.etag_there(request.key, request.if_match);
        ForwardingStore::put(std::move(request), std::move(done));
    }
    void copy(CopyRequest request, StoreDone<PutResponse> done) override {
        request.source_if_match = unsent_.etag_there(request.source_key, request.source_if_match);
        ForwardingStore::copy(std::move(request), std::move(done));
    }
    void remove(RemoveRequest request, StoreDone<void> done) override {
        request.if_match = unsent_.etag_there(request.key, request.if_match);
        ForwardingStore::remove(std::move(request), std::move(done));
    }
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override {
        for (RemoveRequest& request : requests) {
            request.if_match = unsent_.etag_there(request.key, request.if_match);
        }
        ForwardingStore::remove_many(std::move(requests), std::move(done));
    }
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override {
        request.source_if_match = unsent_.etag_there(request.source_key, request.source_if_match);
        ForwardingStore::upload_part_copy(std::move(request), std::move(done));
    }

private:
    const UnsentChanges& unsent_;
};

}  // namespace ckptfs
