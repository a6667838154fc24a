// SPDX-License-Identifier: Apache-2.0
// A bucket whose changes are acknowledged by a local disk, and made in the store behind it (--ack disk).
//
// It keeps S3's rules as the mount sees them: what is put, copied or removed here is there at once for who asks here,
// under an ETag of its own until the mount ends. Other clients of the bucket see it once it was sent. Conditions are
// answered by what is known here, and by the store where nothing is; they are sent along, too, for what other clients
// do meanwhile.
//
// writeback_store.cc has reads, writeback_store_changes.cc puts, copies and removals, writeback_store_uploads.cc the
// rest.
//
// Ownership: the environment outlives it. Threads: as ObjectStore.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/local_uploads.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

class WritebackStore final : public ObjectStore {
public:
    static Result<std::unique_ptr<WritebackStore>> open(const WritebackEnvironment& environment);

    // To start it, to wait for it, and to end it.
    [[nodiscard]] UnsentChanges& unsent() const { return *unsent_; }

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
    // The disk does not ask for that.
    [[nodiscard]] int slowed_to() const override { return 0; }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override;
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override;

private:
    using HeldPtr = std::shared_ptr<const HeldChange>;
    WritebackStore(const WritebackEnvironment& environment, std::unique_ptr<UnsentChanges> unsent);

    void get_held(GetRequest request, const HeldPtr& held, StoreDone<GetResponse> done);
    struct HeldRead {
        HeldPtr held;
        // What is left of it.
        ByteRange range;
        TakeBytes on_body;
        GetResponse response;
        StoreDone<GetResponse> done;
        int tries = 0;
    };
    void read_held(const std::shared_ptr<HeldRead>& read);
    void held_read_ended(const std::shared_ptr<HeldRead>& read, const Status& status);
    void get_sent(GetRequest request, StoreDone<GetResponse> done);
    struct Conditions {
        std::string key;
        bool if_none_match = false;
        std::string if_match;
    };
    // Whether they hold by now.
    void check(Conditions conditions, StoreDone<void> done);
    // `change`: without number and times.
    void acknowledge(UnsentChange change, Body body, std::function<bool()> may, StoreDone<PutResponse> done);
    void acknowledge_copy(const CopyRequest& request, ObjectInfo source, StoreDone<PutResponse> done);
    void copy_part_held(const UploadPartCopyRequest& request, const HeldPtr& source, StoreDone<UploadedPart> done);
    void complete(const CompleteRequest& request, StoreDone<PutResponse> done);
    [[nodiscard]] Result<Body> write_body(const PutRequest& request);

    const WritebackEnvironment environment_;
    const std::unique_ptr<UnsentChanges> unsent_;
    LocalUploads uploads_;
};

}  // namespace ckptfs
