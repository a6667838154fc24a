// SPDX-License-Identifier: Apache-2.0
// How the bytes of one commit reach the store: by one PutObject, or by one multipart upload.
//
// The upload is created with its first part; parts are sent in parallel, as many as memory and the store allow. A part
// number may be sent again: the later bytes win, and never overtake the earlier request. The first failure is kept and
// returned to everything after it. An upload that another client ends before any part of it is in the store is begun
// again.
//
// Ownership: shared; requests in flight keep it alive. The destructor ends an upload that was not completed.
// Threads: all functions may be called from any thread; callbacks run exactly once, without locks held, also inline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/outbox.h"
#include "ckptfs/object_store.h"
#include "write/publish_permits.h"

namespace ckptfs {

struct UploadTarget {
    std::string key;
    Metadata metadata;
    std::string content_encoding;
    // Fails with EEXIST if the key exists.
    bool if_none_match = false;
    // Asked for the key's permit when the object is to be published; null if none is needed.
    const PublishPermits* permits = nullptr;
    // The value of kWriteIdMetadata; a new one if it is empty.
    std::string write_id{};
};

struct CopySource {
    std::string key;
    std::string etag;
    // Bytes that are copied.
    std::uint64_t size = 0;
    // Absent for the whole object.
    std::optional<ByteRange> range;
};

class Upload : public std::enable_shared_from_this<Upload> {
public:
    using PartDone = std::function<void(Status)>;
    using Published = std::function<void(Result<PutResponse>)>;
    using Done = std::function<void(Status)>;

    [[nodiscard]] static std::shared_ptr<Upload> create(ObjectStore& store, UploadTarget target);
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    void send_part(int number, Payload body, std::uint32_t crc32c, PartDone done);
    void copy_part(int number, CopySource source, PartDone done);
    // Parts from this number on will be sent again or are no longer part of the object.
    void forget_parts_from(int number);

    // Sends the whole object in one request, instead of parts.
    void put(Payload body, std::uint32_t crc32c, Published done);
    // Waits for the parts in flight, and publishes them. `size`: of the whole object; parts that add up to another one
    // are not published.
    void complete(std::uint64_t size, Published done);
    // Nothing more is sent or published, and what waits to be sent is freed at once; what is in the store stays until
    // abort().
    void give_up();
    // Ends what is not yet completed: at once, so that parts in flight need not be waited for, and again after them,
    // because S3 may keep a part that was in flight (AbortMultipartUpload in the Amazon S3 API). `done` comes when
    // nothing is in flight and nothing of it is left in the store; an object that was published meanwhile stays.
    void abort(Done done);

    [[nodiscard]] const std::string& write_id() const { return write_id_; }
    [[nodiscard]] std::uint64_t bytes_in_store() const;
    [[nodiscard]] int requests_in_flight() const;

private:
    struct PartRequest {
        Payload body;
        std::uint32_t crc32c = 0;
        std::optional<CopySource> source;
        std::vector<PartDone> done;
    };
    // What the store has of a part, and what it gets next.
    struct PartState {
        bool in_flight = false;
        bool forgotten = false;
        std::optional<UploadedPart> uploaded;
        // Sent when the request in flight has been answered, or when the upload exists.
        std::optional<PartRequest> next;
    };

    Upload(ObjectStore& store, UploadTarget target);

    void add_part(int number, PartRequest request) EXCLUDES(mutex_);
    void create_upload() REQUIRES(mutex_);
    void start_part(int number) REQUIRES(mutex_);
    void keep_failure(const Error& error) REQUIRES(mutex_);
    void answer_waiting_parts() REQUIRES(mutex_);
    void send_no_more() REQUIRES(mutex_);
    void renew_no_more() REQUIRES(mutex_);
    void go_on_when_quiet() REQUIRES(mutex_);
    void complete_now() REQUIRES(mutex_);
    // Sends what makes the object visible.
    using Publish = std::function<void(const PublishPermit::Counts& may_send)>;
    void publish(Publish send) REQUIRES(mutex_);
    // Whether the request is sent again, once a permit that has ended is renewed.
    bool renew_permit(const Result<PutResponse>& result) REQUIRES(mutex_);
    void renewed(Result<PublishPermit::Counts> counts) EXCLUDES(mutex_);
    void publishing_ended(Result<PutResponse> result) REQUIRES(mutex_);
    void end_now() REQUIRES(mutex_);
    void end_before_quiet() REQUIRES(mutex_);
    void discard(Payload body) REQUIRES(mutex_);

    void created(Result<UploadId> id) EXCLUDES(mutex_);
    void part_answered(int number, const UploadId& id, const std::shared_ptr<PartRequest>& request,
                       Result<UploadedPart> result) EXCLUDES(mutex_);
    // Whether the part is sent again, to another upload, because this one has been ended by another client.
    bool begin_anew(int number, const UploadId& id, const std::shared_ptr<PartRequest>& request,
                    const Result<UploadedPart>& result) REQUIRES(mutex_);
    void completed(Result<PutResponse> result) EXCLUDES(mutex_);

    ObjectStore& store_;
    const UploadTarget target_;
    const std::string write_id_;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    bool creating_ GUARDED_BY(mutex_) = false;
    int begun_anew_ GUARDED_BY(mutex_) = 0;
    std::optional<UploadId> id_ GUARDED_BY(mutex_);
    std::map<int, PartState> parts_ GUARDED_BY(mutex_);
    int in_flight_ GUARDED_BY(mutex_) = 0;
    std::optional<Error> failure_ GUARDED_BY(mutex_);
    Published completing_ GUARDED_BY(mutex_);
    // The request that makes the object visible is in flight: the upload is neither ended nor reported before the
    // reply.
    bool publishing_ GUARDED_BY(mutex_) = false;
    PublishPermit permit_ GUARDED_BY(mutex_);
    // Set only if the permit can be renewed.
    Publish publish_ GUARDED_BY(mutex_);
    std::optional<PermitRenewals> renewals_ GUARDED_BY(mutex_);
    // A permit is being renewed: this counts as a request in flight, but none is.
    bool renewing_ GUARDED_BY(mutex_) = false;
    std::uint64_t size_to_complete_ GUARDED_BY(mutex_) = 0;
    std::vector<Done> aborting_ GUARDED_BY(mutex_);
    bool ending_ GUARDED_BY(mutex_) = false;
    // Published or ended: nothing is left to abort.
    bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs
