// SPDX-License-Identifier: Apache-2.0
// The bucket's store, whose replies are recorded for --cache-only.
//
// A reply is recorded unless its object was changed through this store since it was asked for: then the change is what
// is recorded. Keys that begin with `hidden` are not recorded.
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
    // Once there are more changes, those before these count as changes of all objects.
    static constexpr std::size_t kMost = 8192;

    // A number that grows with each change.
    [[nodiscard]] std::uint64_t now() const { return last_; }
    // Called when a change begins, when it ends, and when a reply about the key is recorded.
    void note(const std::string& key);
    [[nodiscard]] bool has_changed(const std::string& key, std::uint64_t since) const;
    // Keys that have changed since; empty if that is not known any more.
    [[nodiscard]] std::optional<std::set<std::string>> changed_since(std::uint64_t since) const;

private:
    std::uint64_t last_ = 0;
    std::uint64_t forgotten_until_ = 0;
    std::unordered_map<std::string, std::uint64_t> changed_;
    // The same, in their order; an entry whose key has changed again since is passed over.
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
    // When something was asked for: by the changes of this process, and by the clock.
    struct Asked {
        std::uint64_t since = 0;
        SteadyTime at{};
    };
    [[nodiscard]] Asked begin_answer() EXCLUDES(mutex_);
    void begin_change(const std::string& key) EXCLUDES(mutex_);
    void record(ObjectInfo object, std::optional<std::string> body, const Asked& asked) EXCLUDES(mutex_);
    void record_missing(const std::string& key, const Error& why, const Asked& asked) EXCLUDES(mutex_);
    void record_page(ListRequest request, ListResponse page, const Asked& asked) EXCLUDES(mutex_);
    [[nodiscard]] ObjectRecorder::Moment of_change() const { return {recorder_.now(), true}; }
    void find_begin(ListRequest& request, const ListResponse& page) REQUIRES(mutex_);
    // `made` records the change; null if it has failed.
    void change_ended(const std::string& key, const std::function<void()>& made) EXCLUDES(mutex_);
    // Takes the description of the object that the upload makes.
    [[nodiscard]] std::optional<ObjectInfo> take_upload(const std::string& id) EXCLUDES(mutex_);

    ObjectRecorder& recorder_;
    const std::string hidden_;

    // Held until an event is handed to the recorder, so that no older one follows it.
    Mutex mutex_;
    RecentChanges changes_ GUARDED_BY(mutex_);
    // Descriptions of objects by the ID of their upload.
    std::unordered_map<std::string, ObjectInfo> uploads_ GUARDED_BY(mutex_);
    // The last names of pages, by what the next page is asked for with.
    std::unordered_map<std::string, std::string> page_ends_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
