// SPDX-License-Identifier: Apache-2.0
// The bucket's store, and what it answers is recorded for --cache-only.
//
// An answer is recorded unless its object was changed through this store since it was asked for: then that is what is
// recorded. Names below `hidden` are not.
//
// Ownership: store and recorder outlive it. Threads: as ObjectStore.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/forwarding_store.h"
#include "base/mutex.h"
#include "disk/object_recorder.h"

namespace ckptfs {

// Which objects were changed, and when.
class RecentChanges {
public:
    // Those before count as of all objects, once there are more.
    static constexpr std::size_t kMost = 8192;

    // A number that grows with each change.
    [[nodiscard]] std::uint64_t now() const EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return last_;
    }
    // At the begin of a change, and at its end.
    void note(const std::string& key) EXCLUDES(mutex_);
    [[nodiscard]] bool has_changed(const std::string& key, std::uint64_t since) const EXCLUDES(mutex_);

private:
    mutable Mutex mutex_;
    std::uint64_t last_ GUARDED_BY(mutex_) = 0;
    std::uint64_t forgotten_until_ GUARDED_BY(mutex_) = 0;
    std::unordered_map<std::string, std::uint64_t> changed_ GUARDED_BY(mutex_);
};

class RecordingStore final : public ForwardingStore {
public:
    RecordingStore(ObjectStore& store, ObjectRecorder& recorder, std::string hidden)
        : ForwardingStore(store), recorder_(recorder), hidden_(std::move(hidden)) {}

    void head(std::string key, StoreDone<ObjectInfo> done) override;
    void get(GetRequest request, StoreDone<GetResponse> done) override;
    void put(PutRequest request, StoreDone<PutResponse> done) override;
    void copy(CopyRequest request, StoreDone<PutResponse> done) override;
    void list(ListRequest request, StoreDone<ListResponse> done) override;
    void remove(RemoveRequest request, StoreDone<void> done) override;
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override;
    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override;
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;

private:
    [[nodiscard]] bool is_hidden(const std::string& key) const { return key.starts_with(hidden_); }
    void record(ObjectInfo object, std::optional<std::string> body, std::uint64_t since);
    void record_missing(const std::string& key, const Error& why, std::uint64_t since);
    void record_page(ListRequest request, ListResponse page, std::uint64_t since) EXCLUDES(mutex_);
    // What describes it.
    [[nodiscard]] std::optional<ObjectInfo> take_upload(const std::string& id) EXCLUDES(mutex_);

    ObjectRecorder& recorder_;
    const std::string hidden_;
    RecentChanges changes_;

    Mutex mutex_;
    // By the ID of the upload.
    std::unordered_map<std::string, ObjectInfo> uploads_ GUARDED_BY(mutex_);
    // Where pages have ended, by the token of the next one.
    std::unordered_map<std::string, std::string> page_ends_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
