// SPDX-License-Identifier: Apache-2.0
// What ckptfs needs of an object store, in S3's own terms.
//
// One call is one S3 operation with everything that makes it dependable already inside: signing, retries with backoff
// (until `retry_for` has passed without progress), deadlines, checksum headers, the error table, and, for operations
// that publish (put, complete), a HEAD of the key when the reply was lost. Keys are full keys, mount prefix included.
//
// Ownership: the store keeps what it is given until `done` was called; `done` is called exactly once, also while the
// store is destroyed (ECANCELED).
// Threads: every function may be called from any thread and returns at once. Callbacks run on an HTTP, timer or
// executor thread without locks held; they must be short and must not block. `on_body` of one get() is never called
// concurrently with itself or with its `done`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

// User metadata without the x-amz-meta- prefix; names in lower case.
using Metadata = std::map<std::string, std::string>;

struct ObjectInfo {
    std::string key;
    std::uint64_t size = 0;
    // With its quotes, exactly as the store sent it.
    std::string etag;
    WallTime last_modified{};
    Metadata metadata;
    std::string content_type;
    std::string content_encoding;
    std::string storage_class;
    // Other headers that a program may have set, by name in lower case; a copy with metadata of its own repeats them.
    std::map<std::string, std::string> other_headers;
};

// First byte and length; or the last `length` bytes when `suffix` is set.
struct ByteRange {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool suffix = false;
};

struct GetRequest {
    std::string key;
    std::optional<ByteRange> range;
    // Pins the version: for another one, the reply is 412, errno ESTALE.
    std::string if_match;
    // What else is known of the version. Another total size is ESTALE, and so is another time if there are no ETags to
    // compare. If a reply has no ETag and times are unknown, too, a HEAD afterwards tells whether it was the version.
    std::optional<std::uint64_t> if_size{};
    WallTime if_modified{};
    // Reads the end of an object, for which an open(2) waits: it does not queue behind file data.
    bool for_open = false;
    // Reads the whole of an object known to be small, for which a commit waits: it does not queue behind file data
    // either. A range would not be checked against the store's checksum, which is that of the whole.
    bool is_small = false;
    // Receives the bytes in order, from the first byte of the range. After a broken connection the store resumes where
    // it stopped (pinned by the ETag it has seen), so that no byte is delivered twice. Returning false cancels.
    std::function<bool(ByteSpan)> on_body;
    // Called before the first byte where the answer does not tell which version it is of: only the end of the request
    // says whether the bytes may be used.
    std::function<void()> on_unidentified{};
};

struct GetResponse {
    // `size` is that of the whole object, also for a range.
    ObjectInfo object;
    // First byte delivered, from Content-Range.
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    // x-amz-request-id, for the message if the bytes turn out to be damaged.
    std::string request_id;
    // When the store replied, by its own clock (Date), to the second like Last-Modified; zero if absent.
    WallTime answered_at{};
    // The whole object came, and matches the checksum that the store keeps of it, or its ETag if that is an MD5. Bytes
    // that do not match are an error, marked as damage.
    bool has_checksum = false;
};

struct PutRequest {
    std::string key;
    Payload body;
    // CRC-32C of the whole body; sent as x-amz-checksum-crc32c if the store takes it. Computed by the store's client if
    // absent.
    std::optional<std::uint32_t> crc32c;
    Metadata metadata;
    std::string content_type;
    std::string content_encoding;
    // Fails with EEXIST if the key exists.
    bool if_none_match = false;
    // Replaces only this version: for another one, the reply is 412, errno ESTALE.
    std::string if_match;
    // As in RemoveRequest.
    std::function<bool()> may_send = nullptr;
};

struct PutResponse {
    std::string etag;
    WallTime last_modified{};
    // An earlier attempt got no answer: the store may still carry it out, after this one.
    bool may_come_again = false;
};

struct CopyRequest {
    std::string source_key;
    std::string key;
    // Pins the source: for another version, the reply is 412, errno ESTALE.
    std::string source_if_match;
    bool if_none_match = false;
    // Replaces the description of the source: metadata, content type and encoding, other headers. If it has a
    // `ckptfs-write` of its own, a copy whose reply was lost is recognised.
    std::optional<ObjectInfo> description;
    // As in RemoveRequest.
    std::function<bool()> may_send = nullptr;
};

struct CreateUploadRequest {
    std::string key;
    Metadata metadata;
    std::string content_type;
    std::string content_encoding;
    std::string storage_class;
    std::map<std::string, std::string> other_headers;
};

struct UploadId {
    std::string key;
    std::string id;
};

struct UploadPartRequest {
    UploadId upload;
    // 1 to 10,000 (Amazon S3 multipart upload limits).
    int part_number = 0;
    Payload body;
    std::uint32_t crc32c = 0;
};

struct UploadPartCopyRequest {
    UploadId upload;
    int part_number = 0;
    std::string source_key;
    std::string source_if_match;
    // The range of the source; the whole source if absent.
    std::optional<ByteRange> range;
};

// A part that the store has: the reply to UploadPart, a row of ListParts, and what CompleteMultipartUpload names.
struct UploadedPart {
    int part_number = 0;
    std::string etag;
    // Base64, exactly as the store confirmed it; empty for a store without checksums.
    std::string checksum_crc32c;
    std::uint64_t size = 0;
};

struct CompleteRequest {
    UploadId upload;
    std::vector<UploadedPart> parts;
    // The value of the object's `ckptfs-write` metadata, by which a commit whose reply was lost is recognised.
    std::string write_id;
    // Only for the caller's bookkeeping of what the object will be; the store checks the parts.
    std::uint64_t size = 0;
    bool if_none_match = false;
    // As in RemoveRequest.
    std::function<bool()> may_send = nullptr;
};

struct ListRequest {
    // Lists only keys that begin with this; not escaped.
    std::string prefix;
    // "/" for one directory level, empty for all keys below.
    std::string delimiter;
    std::string continuation_token;
    std::string start_after;
    int max_keys = 1000;
};

// Names on a page that is not the last one, at least, if as many were asked for: a caller may take a page with fewer
// for the last. S3 itself may answer with a short page, or an empty one.
inline constexpr std::size_t kFewestListed = 16;

struct ListResponse {
    // With key, size, etag, last_modified and storage_class; without metadata.
    std::vector<ObjectInfo> objects;
    // Each ends in the delimiter.
    std::vector<std::string> common_prefixes;
    // Empty on the last page.
    std::string next_continuation_token;
};

struct RemoveRequest {
    // Implicit, because most removals name only a key, whatever version is there.
    RemoveRequest(std::string removed_key, std::string pinned_etag = {})
        : key(std::move(removed_key)), if_match(std::move(pinned_etag)) {}
    RemoveRequest(const char* removed_key) : key(removed_key) {}

    std::string key;
    // Removes only this version: another one stays, and the reply is 412, errno ESTALE. Stores without conditional
    // deletes ignore it.
    std::string if_match;
    // Another version after an attempt without a reply is ESTALE, too, with Error::outcome_unknown: it may have been
    // there before. Else it is success.
    bool is_judged_by_caller = false;
    // Asked before each attempt, on any thread, until the request has ended: once it returns false, nothing more is
    // sent, and the request fails.
    std::function<bool()> may_send;
};

struct DeleteFailure {
    std::string key;
    Error error;
};

struct OpenUpload {
    UploadId upload;
    WallTime initiated{};
    // The upload was begun through this ObjectStore, which has not seen its end.
    bool is_own = false;
};

template <class T>
using StoreDone = std::function<void(Result<T>)>;

class ObjectStore {
public:
    virtual ~ObjectStore() = default;

    virtual void head(std::string key, StoreDone<ObjectInfo> done) = 0;
    virtual void get(GetRequest request, StoreDone<GetResponse> done) = 0;
    virtual void put(PutRequest request, StoreDone<PutResponse> done) = 0;
    virtual void copy(CopyRequest request, StoreDone<PutResponse> done) = 0;
    virtual void list(ListRequest request, StoreDone<ListResponse> done) = 0;
    // Deleting what does not exist is success, as in S3.
    virtual void remove(RemoveRequest request, StoreDone<void> done) = 0;
    // At most 1,000 keys (DeleteObjects). `done` gets the keys that were not deleted.
    virtual void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) = 0;

    virtual void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) = 0;
    virtual void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) = 0;
    virtual void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) = 0;
    // Whether the store is known to lack UploadPartCopy, or to have none that can be trusted with this source;
    // upload_part_copy() then fails without a request.
    [[nodiscard]] virtual bool lacks_part_copy(const std::string& source_key) const = 0;
    // Finds out, once, whether the store has UploadPartCopy, before a caller plans with copies that it could not take
    // back. `key`: one that the caller will write.
    virtual void find_part_copy(std::string key, std::function<void()> found) = 0;
    // Limit on requests at once while it is lowered because the store asked to slow down (503); else 0. The same bytes
    // in fewer, larger requests take as long and ask less of the store.
    [[nodiscard]] virtual int slowed_to() const = 0;
    virtual void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) = 0;
    // Aborting an upload that is gone is success.
    virtual void abort_upload(UploadId upload, StoreDone<void> done) = 0;
    // All open uploads below the prefix, all pages.
    virtual void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) = 0;
    virtual void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) = 0;
};

// An ETag that no object has, to find out whether a store evaluates a condition.
inline constexpr const char* kWrongETag = "\"00000000000000000000000000000000\"";

// Name of the user metadata that carries a commit's UUID (x-amz-meta-ckptfs-write).
inline constexpr const char* kWriteIdMetadata = "ckptfs-write";
// The object's write id; empty if it has none.
[[nodiscard]] inline std::string write_id_of(const ObjectInfo& object) {
    const auto found = object.metadata.find(kWriteIdMetadata);
    return found == object.metadata.end() ? std::string() : found->second;
}

}  // namespace ckptfs
