// SPDX-License-Identifier: Apache-2.0
// The store of --cache-only: what a node has recorded of the bucket (ObjectRecord), without asking it.
//
// Reading bytes that are not recorded fails with EIO, and a change with EROFS.
//
// Ownership: `timer` outlives it. Threads: as ObjectStore.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "disk/disk_threads.h"
#include "disk/object_record.h"

namespace ckptfs {

class RecordedStore final : public ObjectStore {
public:
    // Waits for the disk, and reads all of what is recorded. ENOENT if nothing ever was. `store`: endpoint and bucket.
    static Result<std::unique_ptr<RecordedStore>> open(const std::string& directory, const std::string& store,
                                                       Timer& timer);
    ~RecordedStore() override { static_cast<void>(stop()); }

    void head(std::string key, StoreDone<ObjectInfo> done) override;
    void get(GetRequest request, StoreDone<GetResponse> done) override;
    void list(ListRequest request, StoreDone<ListResponse> done) override;

    void put(PutRequest request, StoreDone<PutResponse> done) override;
    void copy(CopyRequest request, StoreDone<PutResponse> done) override;
    void remove(RemoveRequest request, StoreDone<void> done) override;
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override;
    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override;
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override;
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override;
    [[nodiscard]] bool lacks_part_copy(const std::string& /*source_key*/) const override { return true; }
    void find_part_copy(std::string /*key*/, std::function<void()> found) override { found(); }
    [[nodiscard]] int slowed_to() const override { return 0; }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override;
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override;

    // False if the disk hangs: then requests are kept until it comes back. Later requests fail.
    bool stop();

private:
    RecordedStore(std::unique_ptr<ObjectRecord> record, Timer& timer);

    template <class T>
    void ask(std::function<Result<T>(ObjectRecord&)> question, StoreDone<T> done);

    // Used by one thread, and by callers whose requests come while it stops.
    struct Record {
        explicit Record(std::unique_ptr<ObjectRecord> opened) : record(std::move(opened)) {}

        Mutex mutex;
        const std::unique_ptr<ObjectRecord> record GUARDED_BY(mutex);
    };
    const std::shared_ptr<Record> record_;
    std::atomic<bool> is_stopped_{false};
    DiskThreads reads_;
};

}  // namespace ckptfs
