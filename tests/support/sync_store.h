// SPDX-License-Identifier: Apache-2.0
// ObjectStore for tests and tools that wait for each answer.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs {

class SyncStore {
public:
    explicit SyncStore(ObjectStore& store) : store_(store) {}

    Result<ObjectInfo> head(const std::string& key) {
        return wait<ObjectInfo>([&](auto done) { store_.head(key, done); });
    }
    Result<GetResponse> get(GetRequest request) {
        return wait<GetResponse>([&](auto done) { store_.get(std::move(request), done); });
    }
    Result<PutResponse> put(PutRequest request) {
        return wait<PutResponse>([&](auto done) { store_.put(std::move(request), done); });
    }
    Result<PutResponse> copy(CopyRequest request) {
        return wait<PutResponse>([&](auto done) { store_.copy(std::move(request), done); });
    }
    Result<ListResponse> list(ListRequest request) {
        return wait<ListResponse>([&](auto done) { store_.list(std::move(request), done); });
    }
    Status remove(const std::string& key, const std::string& if_match = {}) {
        return wait<void>([&](auto done) { store_.remove({key, if_match}, done); });
    }
    Result<std::vector<DeleteFailure>> remove_many(std::vector<RemoveRequest> requests) {
        return wait<std::vector<DeleteFailure>>([&](auto done) { store_.remove_many(std::move(requests), done); });
    }
    Result<UploadId> create_upload(CreateUploadRequest request) {
        return wait<UploadId>([&](auto done) { store_.create_upload(std::move(request), done); });
    }
    Result<UploadedPart> upload_part(UploadPartRequest request) {
        return wait<UploadedPart>([&](auto done) { store_.upload_part(std::move(request), done); });
    }
    Result<UploadedPart> upload_part_copy(UploadPartCopyRequest request) {
        return wait<UploadedPart>([&](auto done) { store_.upload_part_copy(std::move(request), done); });
    }
    Result<PutResponse> complete_upload(CompleteRequest request) {
        return wait<PutResponse>([&](auto done) { store_.complete_upload(std::move(request), done); });
    }
    Status abort_upload(const UploadId& upload) {
        return wait<void>([&](auto done) { store_.abort_upload(upload, done); });
    }
    Result<std::vector<OpenUpload>> list_uploads(const std::string& prefix) {
        return wait<std::vector<OpenUpload>>([&](auto done) { store_.list_uploads(prefix, done); });
    }
    Result<std::vector<UploadedPart>> list_parts(const UploadId& upload) {
        return wait<std::vector<UploadedPart>>([&](auto done) { store_.list_parts(upload, done); });
    }

private:
    template <class T, class Start>
    static Result<T> wait(Start start) {
        auto promise = std::make_shared<std::promise<Result<T>>>();
        auto answer = promise->get_future();
        start(StoreDone<T>([promise](Result<T> result) { promise->set_value(std::move(result)); }));
        if (answer.wait_for(std::chrono::minutes(2)) != std::future_status::ready) {
            return failure(EDEADLK, "no answer from the store within two minutes");
        }
        return answer.get();
    }

    ObjectStore& store_;
};

}  // namespace ckptfs
