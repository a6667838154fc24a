// SPDX-License-Identifier: Apache-2.0
// An ObjectStore that forwards to another one; the base of stores that do a few things differently.
//
// Ownership: the store behind it outlives it. Threads: as ObjectStore.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs {

class ForwardingStore : public ObjectStore {
public:
    explicit ForwardingStore(ObjectStore& store) : store_(store) {}

    void head(std::string key, StoreDone<ObjectInfo> done) override { store_.head(std::move(key), std::move(done)); }
    void get(GetRequest request, StoreDone<GetResponse> done) override {
        store_.get(std::move(request), std::move(done));
    }
    void put(PutRequest request, StoreDone<PutResponse> done) override {
        store_.put(std::move(request), std::move(done));
    }
    void copy(CopyRequest request, StoreDone<PutResponse> done) override {
        store_.copy(std::move(request), std::move(done));
    }
    void list(ListRequest request, StoreDone<ListResponse> done) override {
        store_.list(std::move(request), std::move(done));
    }
    void remove(RemoveRequest request, StoreDone<void> done) override {
        store_.remove(std::move(request), std::move(done));
    }
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override {
        store_.remove_many(std::move(requests), std::move(done));
    }
    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override {
        store_.create_upload(std::move(request), std::move(done));
    }
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override {
        store_.upload_part(std::move(request), std::move(done));
    }
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override {
        store_.upload_part_copy(std::move(request), std::move(done));
    }
    [[nodiscard]] bool lacks_part_copy(const std::string& source_key) const override {
        return store_.lacks_part_copy(source_key);
    }
    void find_part_copy(std::string key, std::function<void()> found) override {
        store_.find_part_copy(std::move(key), std::move(found));
    }
    [[nodiscard]] int slowed_to() const override { return store_.slowed_to(); }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override {
        store_.complete_upload(std::move(request), std::move(done));
    }
    void abort_upload(UploadId upload, StoreDone<void> done) override {
        store_.abort_upload(std::move(upload), std::move(done));
    }
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override {
        store_.list_uploads(std::move(prefix), std::move(done));
    }
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override {
        store_.list_parts(std::move(upload), std::move(done));
    }

protected:
    [[nodiscard]] ObjectStore& behind() const { return store_; }

private:
    ObjectStore& store_;
};

}  // namespace ckptfs
