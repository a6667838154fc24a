// SPDX-License-Identifier: Apache-2.0
// The bucket's store, and what it answers is recorded for --cache-only.
//
// An answer is recorded unless its object was changed through this store since it was asked for: then that is what is
// recorded. Names below `hidden` are not.
//
// Ownership: store and recorder outlive it. Threads: as ObjectStore.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/forwarding_store.h"
#include "base/mutex.h"
#include "disk/object_recorder.h"

namespace ckptfs {

// Which objects were changed, and when. A value, not synchronised.
class RecentChanges {
public:
    // Those before count as of all objects, once there are more.
    static constexpr std::size_t kMost = 8192;

    // A number that grows with each change.
    [[nodiscard]] std::uint64_t now() const { return last_; }
    // At the begin of a change and at its end, and with what an answer has shown.
    void note(const std::string& key);
    [[nodiscard]] bool has_changed(const std::string& key, std::uint64_t since) const;
    // Those that have; null where it is not known any more.
    [[nodiscard]] std::optional<std::set<std::string>> changed_since(std::uint64_t since) const;

private:
    std::uint64_t last_ = 0;
    std::uint64_t forgotten_until_ = 0;
    std::unordered_map<std::string, std::uint64_t> changed_;
    // The same, in their order; one that has changed again since is passed over.
    std::deque<std::pair<std::uint64_t, std::string>> order_;
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
    [[nodiscard]] std::uint64_t begin_answer() EXCLUDES(mutex_);
    void begin_change(const std::string& key) EXCLUDES(mutex_);
    void record(ObjectInfo object, std::optional<std::string> body, std::uint64_t since) EXCLUDES(mutex_);
    void record_missing(const std::string& key, const Error& why, std::uint64_t since) EXCLUDES(mutex_);
    void record_page(ListRequest request, ListResponse page, std::uint64_t since) EXCLUDES(mutex_);
    void find_begin(ListRequest& request, const ListResponse& page) REQUIRES(mutex_);
    // `made`: null where it has failed.
    void change_ended(const std::string& key, const std::function<void()>& made) EXCLUDES(mutex_);
    // What describes it.
    [[nodiscard]] std::optional<ObjectInfo> take_upload(const std::string& id) EXCLUDES(mutex_);

    ObjectRecorder& recorder_;
    const std::string hidden_;

    // Held until what is known is handed on, so that nothing older comes behind it.
    Mutex mutex_;
    RecentChanges changes_ GUARDED_BY(mutex_);
    // By the ID of the upload.
    std::unordered_map<std::string, ObjectInfo> uploads_ GUARDED_BY(mutex_);
    // Where pages have ended, by what the next one is asked for with.
    std::unordered_map<std::string, std::string> page_ends_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
