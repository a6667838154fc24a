// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/object_copy.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/mutex.h"
#include "base/store_wait.h"
#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "fs/objects/copy_ranges.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

// Enough to hide S3's time per copied part; a copied part moves no bytes through this machine.
constexpr std::size_t kPartsAtOnce = 32;
// Fetches of the same bytes until two agree.
constexpr int kMostFetches = 4;
// Another mount may end an upload whose first part takes long, as one that is lost. A client that ends it again and
// again is not worth racing.
constexpr int kMostAnew = 3;

Copied copied_as(const ObjectInfo& source, const PutResponse& response, const std::string& write_id) {
    Copied copied{source.etag, ObjectVersion{response.etag, source.size, source.size, response.last_modified}, write_id,
                  write_id_of(source)};
    copied.may_come_again = response.may_come_again;
    return copied;
}

Result<std::vector<UploadedPart>> copy_parts(ObjectStore& store, const ObjectInfo& source, const UploadId& upload) {
    const std::vector<ByteRange> ranges = copy_ranges(source.size);
    std::vector<UploadedPart> parts(ranges.size());
    const Status copied =
        for_each_in_parallel(ranges.size(), kPartsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            UploadPartCopyRequest request;
            request.upload = upload;
            request.part_number = static_cast<int>(index) + 1;
            request.source_key = source.key;
            request.source_if_match = source.etag;
            request.range = ranges[index];
            store.upload_part_copy(std::move(request), [&parts, index, done](Result<UploadedPart> part) {
                if (!part) {
                    done(failure(std::move(part.error())));
                    return;
                }
                parts[index] = std::move(*part);
                done({});
            });
        });
    if (!copied) {
        return failure(copied.error());
    }
    return parts;
}

// Bytes of memory outside all budgets, for all copies of the process together. A part that is larger is held alone.
constexpr std::uint64_t kMostHeld = std::uint64_t{64} << 20;

class HeldBytes {
public:
    void take(std::uint64_t bytes) {
        MutexLock lock(mutex_);
        freed_.wait(lock, [&]() REQUIRES(mutex_) { return held_ == 0 || held_ + bytes <= kMostHeld; });
        held_ += bytes;
    }
    void give_back(std::uint64_t bytes) {
        {
            const MutexLock lock(mutex_);
            held_ -= bytes;
        }
        freed_.notify_all();
    }

private:
    Mutex mutex_;
    Condition freed_;
    std::uint64_t held_ GUARDED_BY(mutex_) = 0;
};

// Memory for one part; waits for it.
class PartInMemory {
public:
    explicit PartInMemory(std::uint64_t size) : size_(size) { all().take(size_); }
    ~PartInMemory() { all().give_back(size_); }
    PartInMemory(const PartInMemory&) = delete;
    PartInMemory& operator=(const PartInMemory&) = delete;

private:
    static HeldBytes& all() {
        static HeldBytes held;
        return held;
    }

    const std::uint64_t size_;
};

struct Fetched {
    std::uint64_t size = 0;
    std::uint32_t crc32c = 0;
};

// `kept` takes the bytes, unless it is null.
Result<Fetched> fetch(ObjectStore& store, const ObjectInfo& source, const ByteRange& range, std::string* kept) {
    Fetched fetched;
    GetRequest request;
    request.key = source.key;
    request.if_match = source.etag;
    request.range = range;
    request.on_body = [&fetched, &range, kept](ByteSpan piece) {
        if (piece.size() > range.length - fetched.size) {
            return false;
        }
        fetched.size += piece.size();
        fetched.crc32c = crc32c(piece, fetched.crc32c);
        if (kept != nullptr) {
            kept->append(as_text(piece));
        }
        return true;
    };
    const Result<GetResponse> got = wait_for<GetResponse>([&](auto done) { store.get(request, done); });
    return got ? Result<Fetched>(fetched) : failure(got.error());
}

// Fetched twice, since no checksum covers a part of an object: a bit flipped in the download would be in the copy
// for good. The first fetch is only for the checksum.
Result<UploadedPart> send_part(ObjectStore& store, const ObjectInfo& source, const ByteRange& range,
                               UploadPartRequest request) {
    Result<Fetched> before = fetch(store, source, range, nullptr);
    if (!before) {
        return failure(std::move(before.error()));
    }
    const PartInMemory place(range.length);
    std::string bytes;
    bytes.reserve(range.length);
    for (int fetched = 1; fetched < kMostFetches; ++fetched) {
        bytes.clear();
        Result<Fetched> now = fetch(store, source, range, &bytes);
        if (!now) {
            return failure(std::move(now.error()));
        }
        if (now->size == range.length && now->crc32c == before->crc32c) {
            request.crc32c = now->crc32c;
            request.body = Payload::from_string(std::move(bytes));
            return wait_for<UploadedPart>([&](auto done) { store.upload_part(std::move(request), done); });
        }
        before = now;
    }
    return failure(EIO, format("copy {}: its bytes from offset {} on are damaged on their way from the store",
                               escaped(source.key), range.offset));
}

// One after the other, so that memory for one part is enough.
Result<std::vector<UploadedPart>> send_parts(ObjectStore& store, const ObjectInfo& source, const UploadId& upload) {
    std::vector<UploadedPart> parts;
    for (const ByteRange& range : resent_ranges(source.size)) {
        UploadPartRequest request;
        request.upload = upload;
        request.part_number = static_cast<int>(parts.size()) + 1;
        Result<UploadedPart> part = send_part(store, source, range, std::move(request));
        if (!part) {
            return failure(std::move(part.error()));
        }
        parts.push_back(std::move(*part));
    }
    return parts;
}

using MakeParts = Result<std::vector<UploadedPart>>(ObjectStore& store, const ObjectInfo& source,
                                                    const UploadId& upload);

CreateUploadRequest describe_copy(const ObjectInfo& source, const std::string& destination,
                                  const std::string& write_id) {
    CreateUploadRequest create;
    create.key = destination;
    create.metadata = source.metadata;
    create.metadata[kWriteIdMetadata] = write_id;
    create.content_type = source.content_type;
    create.content_encoding = source.content_encoding;
    create.storage_class = source.storage_class;
    create.other_headers = source.other_headers;
    return create;
}

// The failure before it is the one to report; what cannot be ended now is tried again by the mount's store.
void end_upload(ObjectStore& store, const UploadId& upload) {
    static_cast<void>(wait_for<void>([&](auto done) { store.abort_upload(upload, done); }));
}

Result<Copied> complete_copy(ObjectStore& store, const ObjectInfo& source, CompleteRequest complete) {
    const Result<PutResponse> response =
        wait_for<PutResponse>([&](auto done) { store.complete_upload(complete, done); });
    if (!response) {
        end_upload(store, complete.upload);
        return failure(response.error());
    }
    return copied_as(source, *response, complete.write_id);
}

std::string write_id_for(const ObjectInfo& source, const CopyOptions& options) {
    CopyMark* const mark = options.mark;
    if (mark != nullptr && !mark->write_id.empty() && mark->source_etag == source.etag) {
        return mark->write_id;
    }
    const std::string id = options.rename_id.empty() ? random_uuid() : options.rename_id + "." + random_uuid();
    if (mark != nullptr) {
        *mark = {source.etag, id};
    }
    return id;
}

Result<Copied> copy_by_upload(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                              const CopyOptions& options, MakeParts& make_parts) {
    const std::string write_id = write_id_for(source, options);
    const CreateUploadRequest create = describe_copy(source, destination, write_id);
    for (int begun_anew = 0;; ++begun_anew) {
        const Result<UploadId> upload = wait_for<UploadId>([&](auto done) { store.create_upload(create, done); });
        if (!upload) {
            return failure(upload.error());
        }
        Result<std::vector<UploadedPart>> parts = make_parts(store, source, *upload);
        if (parts) {
            Result<Copied> copied = complete_copy(
                store, source,
                {*upload, std::move(*parts), write_id, source.size, options.no_replace, options.may_go_on});
            if (copied) {
                copied->in_parts = true;
            }
            return copied;
        }
        end_upload(store, *upload);
        // The source is still there, and nothing of the copy is visible: the copy can begin again, however far it was.
        if (!is_upload_gone(parts.error()) || begun_anew == kMostAnew) {
            return failure(std::move(parts.error()));
        }
        log_info(format("{}: the upload of its copy was aborted by another client; starting a new one",
                        escaped(destination)));
    }
}

// Whether the destination has this version: an attempt without a reply has copied it, before another mount removed the
// source.
std::optional<PutResponse> find_copy(ObjectStore& store, const ObjectInfo& source, const std::string& destination) {
    const auto there = wait_for<ObjectInfo>([&](auto done) { store.head(destination, done); });
    const bool is_same_write = there && !write_id_of(source).empty() && write_id_of(*there) == write_id_of(source);
    if (!there || there->size != source.size || (there->etag != source.etag && !is_same_write)) {
        return std::nullopt;
    }
    return PutResponse{there->etag, there->last_modified};
}

Result<Copied> copy_by_request(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                               const CopyOptions& options) {
    CopyRequest request;
    request.source_key = source.key;
    request.key = destination;
    request.source_if_match = source.etag;
    request.if_none_match = options.no_replace;
    request.may_send = options.may_go_on;
    const std::string write_id = options.no_replace ? write_id_for(source, options) : "";
    if (options.no_replace) {
        // So that an attempt whose reply was lost is not mistaken for another client's file.
        request.description = source;
        request.description->metadata[kWriteIdMetadata] = write_id;
    }
    const Result<PutResponse> response = wait_for<PutResponse>([&](auto done) { store.copy(request, done); });
    if (!response) {
        const bool may_be_made = response.error().errno_value == ENOENT && response.error().outcome_unknown;
        const auto made = may_be_made && !options.no_replace ? find_copy(store, source, destination) : std::nullopt;
        return made ? Result<Copied>(copied_as(source, *made, write_id)) : failure(response.error());
    }
    return copied_as(source, *response, write_id);
}

// The answer of a store that copies less at once than S3 does, or that copies nothing.
bool is_too_large_to_copy(const Error& error) {
    return error.errno_value == EOPNOTSUPP || error.errno_value == EFBIG || error.errno_value == EINVAL;
}

Result<Copied> copy_without_parts(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                                  const CopyOptions& options) {
    if (source.size <= kMaxCopySize) {
        Result<Copied> copy = copy_by_request(store, source, destination, options);
        if (copy || !is_too_large_to_copy(copy.error())) {
            return copy;
        }
    }
    return copy_by_upload(store, source, destination, options, send_parts);
}

Result<Copied> copy_large(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                          const CopyOptions& options) {
    if (!store.lacks_part_copy(source.key)) {
        Result<Copied> copy = copy_by_upload(store, source, destination, options, copy_parts);
        if (copy || !store.lacks_part_copy(source.key)) {
            return copy;
        }
    }
    return copy_without_parts(store, source, destination, options);
}

Result<Copied> copy_latest(ObjectStore& store, const std::string& source, const std::string& destination,
                           const CopyOptions& options) {
    auto info = wait_for<ObjectInfo>([&](auto done) { store.head(source, done); });
    if (info && info->etag.empty()) {
        // Without an ETag neither the copy nor the removal of the source would be that of one version.
        Result<std::string> etag = listed_etag(store, source);
        if (!etag) {
            return failure(std::move(etag.error()));
        }
        info->etag = std::move(*etag);
    }
    if (!info) {
        return failure(info.error());
    }
    Result<Copied> copied = copy_in_parts(info->size) ? copy_large(store, *info, destination, options)
                                                      : copy_by_request(store, *info, destination, options);
    // A store that ignores the condition may have copied another version by one request. Such a copy does not have the
    // write ID that is known here, unless this request set one.
    const bool is_sure = copied && (copied->in_parts || copied->copy.etag == info->etag ||
                                    (copied->write_id.empty() && !write_id_of(*info).empty()));
    if (is_sure && options.files != nullptr) {
        ObjectInfo copy = *info;
        copy.key = destination;
        copy.etag = copied->copy.etag;
        copy.last_modified = copied->copy.modified;
        if (!copied->write_id.empty()) {
            copy.metadata[kWriteIdMetadata] = copied->write_id;
        }
        options.files->renamed(*info, copy);
    }
    return copied;
}

// For a small object.
Result<Copied> copy_known(ObjectStore& store, const ObjectInfo& known, const std::string& destination,
                          const CopyOptions& options) {
    Result<Copied> copied = copy_by_request(store, known, destination, options);
    if (copied && copied->copy.etag != known.etag) {
        // The ETag is another one with SSE-KMS, or if a store that ignores the condition has copied another version.
        const auto seen = wait_for<ObjectInfo>([&](auto done) { store.head(destination, done); });
        if (seen && seen->etag == copied->copy.etag) {
            copied->copy.size = copied->copy.stored_size = seen->size;
        }
    }
    return copied;
}

bool is_kept(const ObjectInfo& source, const CopyOptions& options) {
    return options.files != nullptr && options.files->may_have(source.etag);
}

}  // namespace

bool is_copy_of_rename(std::string_view write_id, const std::string& rename_id) {
    return write_id.starts_with(rename_id + ".");
}

bool is_copy_by_request(const ObjectInfo& object, const ObjectInfo& source) {
    const std::string id = write_id_of(object);
    return id == write_id_of(source) && (!id.empty() || object.size == source.size);
}

Result<Copied> copy_object(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                           const CopyOptions& options) {
    // A listing carries no metadata.
    return copy_in_parts(source.size) || is_kept(source, options)
               ? copy_latest(store, source.key, destination, options)
               : copy_by_request(store, source, destination, options);
}

Result<Copied> copy_object(ObjectStore& store, const std::string& source, const std::string& destination,
                           const CopyOptions& options) {
    if (options.known && !options.no_replace && !copy_in_parts(options.known->size) &&
        !is_kept(*options.known, options)) {
        Result<Copied> copied = copy_known(store, *options.known, destination, options);
        // Else another mount has replaced the source meanwhile.
        if (copied || (copied.error().errno_value != ESTALE && copied.error().errno_value != ENOENT)) {
            return copied;
        }
    }
    return copy_latest(store, source, destination, options);
}

}  // namespace ckptfs::fs
