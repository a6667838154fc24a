// SPDX-License-Identifier: Apache-2.0
// A store whose changes are acknowledged by a local disk, and made later in the store behind it (--ack disk).
//
// It keeps S3's rules as the mount sees them: callers here see a put, a copy or a removal at once, under an ETag of its
// own until the mount ends. Other clients of the bucket see it once it was sent. Conditions are checked against unsent
// changes, and against the store where there are none; they are also sent with the change, as other clients may change
// the key meanwhile.
//
// writeback_store.cc has reads, writeback_store_changes.cc puts, copies and removals, writeback_store_uploads.cc the
// rest.
//
// Ownership: the environment outlives it. Threads: as ObjectStore.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/local_uploads.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

class WritebackStore final : public ObjectStore {
public:
    static Result<std::unique_ptr<WritebackStore>> open(const WritebackEnvironment& environment);
    // Waits for all calls, which end with the store behind it.
    ~WritebackStore() override;
    WritebackStore(const WritebackStore&) = delete;
    WritebackStore& operator=(const WritebackStore&) = delete;

    // To start sending, to wait for it, and to end it.
    [[nodiscard]] UnsentChanges& unsent() const { return *unsent_; }
    // Reads a version that was acknowledged here, even if it is no longer the current one.
    void get_version(GetRequest request, const std::shared_ptr<const HeldChange>& held, StoreDone<GetResponse> done);
    // Time since the disk last took bytes of a file, or an upload was begun.
    [[nodiscard]] Milliseconds quiet_for() const;

    void head(std::string key, StoreDone<ObjectInfo> done) override;
    void get(GetRequest request, StoreDone<GetResponse> done) override;
    void put(PutRequest request, StoreDone<PutResponse> done) override;
    void copy(CopyRequest request, StoreDone<PutResponse> done) override;
    void list(ListRequest request, StoreDone<ListResponse> done) override;
    void remove(RemoveRequest request, StoreDone<void> done) override;
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override;

    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override;
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override;
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override;
    [[nodiscard]] bool lacks_part_copy(const std::string& source_key) const override;
    void find_part_copy(std::string key, std::function<void()> found) override;
    // The disk never asks to slow down.
    [[nodiscard]] int slowed_to() const override { return 0; }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override;
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override;

private:
    using HeldPtr = std::shared_ptr<const HeldChange>;
    // Counts a call as under way until the returned function is called, once.
    template <class T>
    [[nodiscard]] StoreDone<T> counted(StoreDone<T> done) {
        const MutexLock lock(calls_mutex_);
        ++calls_;
        return [this, done = std::move(done)](Result<T> result) {
            done(std::move(result));
            const MutexLock ending(calls_mutex_);
            --calls_;
            calls_ended_.notify_all();
        };
    }
    WritebackStore(const WritebackEnvironment& environment, std::unique_ptr<UnsentChanges> unsent);

    void takes_bytes() { took_bytes_at_ = environment_.clock.now().time_since_epoch().count(); }

    void get_held(GetRequest request, const HeldPtr& held, StoreDone<GetResponse> done);
    struct HeldRead {
        HeldPtr held;
        // The bytes of the body that are still to be read.
        ByteRange range;
        TakeBytes on_body;
        // GetRequest::on_unidentified, and whether it was called: bytes that came are then not asked for again.
        std::function<void()> on_unidentified;
        bool is_unidentified = false;
        GetResponse response;
        StoreDone<GetResponse> done;
        int tries = 0;

        void tells_no_version();
    };
    void read_held(const std::shared_ptr<HeldRead>& read);
    void fetch(const std::shared_ptr<HeldRead>& read, const BodyPiece& piece, ByteRange range, TakeBytes take,
               std::function<void(Status)> done);
    void held_read_ended(const std::shared_ptr<HeldRead>& read, const Status& status);
    // Reads the rest from the store, which knows the version by this ETag.
    void read_made(const std::shared_ptr<HeldRead>& read, const std::string& etag);
    void get_sent(GetRequest request, StoreDone<GetResponse> done);
    struct Conditions {
        std::string key;
        bool if_none_match = false;
        std::string if_match;
    };
    // Whether the conditions hold now.
    void check(Conditions conditions, StoreDone<void> done);
    // `change` has no number and time yet.
    void acknowledge(UnsentChange change, Body body, std::function<bool()> may, UnsentChanges::Announced announced,
                     StoreDone<PutResponse> done);
    void acknowledge_copy(const CopyRequest& request, ObjectInfo source, StoreDone<PutResponse> done);
    void complete(const CompleteRequest& request, StoreDone<PutResponse> done);
    void end_upload(const UploadId& upload);
    void remove_known(RemoveRequest request, const StoreDone<void>& done);
    [[nodiscard]] bool is_direct(const std::string& key) const {
        return environment_.is_direct && environment_.is_direct(key);
    }
    [[nodiscard]] Result<Body> write_body(const PutRequest& request);

    const WritebackEnvironment environment_;
    const std::unique_ptr<UnsentChanges> unsent_;
    LocalUploads uploads_;
    std::atomic<bool> stopping_ = false;
    // In ticks of the steady clock.
    std::atomic<SteadyTime::rep> took_bytes_at_;
    Mutex calls_mutex_;
    Condition calls_ended_;
    std::uint64_t calls_ GUARDED_BY(calls_mutex_) = 0;
};

}  // namespace ckptfs
