// SPDX-License-Identifier: Apache-2.0
// A store whose uploads are written down in a journal as they begin and end.
//
// Ownership: store and journal outlive it, and the journal every callback. Threads: as in ObjectStore.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ckptfs/object_store.h"
#include "cli/upload_journal.h"

namespace ckptfs {

class JournaledStore final : public ObjectStore {
public:
    JournaledStore(ObjectStore& store, UploadJournal& journal) : store_(store), journal_(journal) {}

    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override {
        store_.create_upload(std::move(request),
                             [&journal = journal_, done = std::move(done)](Result<UploadId> upload) {
                                 if (upload) {
                                     journal.begun(*upload);
                                 }
                                 done(std::move(upload));
                             });
    }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override {
        UploadId upload = request.upload;
        store_.complete_upload(std::move(request), ending(std::move(upload), std::move(done)));
    }
    void abort_upload(UploadId upload, StoreDone<void> done) override {
        store_.abort_upload(upload, ending(upload, std::move(done)));
    }

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
    void remove(std::string key, StoreDone<void> done) override { store_.remove(std::move(key), std::move(done)); }
    void remove_many(std::vector<std::string> keys, StoreDone<std::vector<DeleteFailure>> done) override {
        store_.remove_many(std::move(keys), std::move(done));
    }
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override {
        store_.upload_part(std::move(request), std::move(done));
    }
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override {
        store_.upload_part_copy(std::move(request), std::move(done));
    }
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override {
        store_.list_uploads(std::move(prefix), std::move(done));
    }
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override {
        store_.list_parts(std::move(upload), std::move(done));
    }

private:
    // Whatever did not succeed may still be there.
    template <class T>
    StoreDone<T> ending(UploadId upload, StoreDone<T> done) {
        return [&journal = journal_, upload = std::move(upload), done = std::move(done)](Result<T> result) {
            if (result) {
                journal.ended(upload);
            }
            done(std::move(result));
        };
    }

    ObjectStore& store_;
    UploadJournal& journal_;
};

}  // namespace ckptfs
