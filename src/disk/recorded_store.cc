// SPDX-License-Identifier: Apache-2.0
#include "disk/recorded_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// As DiskCacheConfig::answers_within.
constexpr std::chrono::seconds kAnswersWithin{10};

Failure not_here(const std::string& key) {
    return failure(EIO,
                   format("{}: not all of it is in --cache-dir; mount without --cache-only to fetch it", escaped(key)));
}

Failure changes_nothing(const std::string& key) {
    return failure(EROFS, format("{}: a mount with --cache-only changes nothing", escaped(key)));
}

struct Found {
    ObjectInfo info;
    std::string body;
};

Result<Found> find(ObjectRecord& record, const GetRequest& request) {
    Result<std::optional<SeenObject>> seen = record.find(request.key);
    if (!seen) {
        return failure(std::move(seen.error()));
    }
    if (!*seen) {
        return failure(ENOENT, format("{}: this node has not seen it", escaped(request.key)));
    }
    Found found{std::move((*seen)->info), ""};
    using std::chrono::seconds;
    const bool is_another_size = request.if_size && *request.if_size != found.info.size;
    const bool is_another_time =
        request.if_modified != WallTime{} &&
        std::chrono::floor<seconds>(request.if_modified) != std::chrono::floor<seconds>(found.info.last_modified);
    const bool is_another = found.info.etag.empty() && (is_another_size || is_another_time);
    if ((!request.if_match.empty() && request.if_match != found.info.etag) || is_another) {
        return failure(ESTALE, format("{}: another version of it is in --cache-dir", escaped(request.key)));
    }
    if (!(*seen)->is_described) {
        return not_here(request.key);
    }
    if (found.info.size > 0) {
        Result<std::optional<std::string>> body = record.body(request.key, found.info.etag);
        if (!body) {
            return failure(std::move(body.error()));
        }
        if (!*body || (*body)->size() != found.info.size) {
            return not_here(request.key);
        }
        found.body = std::move(**body);
    }
    return found;
}

// The bytes of the range, as far as they exist.
std::string_view cut(std::string_view bytes, const std::optional<ByteRange>& range) {
    if (!range) {
        return bytes;
    }
    if (range->suffix) {
        return bytes.substr(bytes.size() - std::min<std::uint64_t>(range->length, bytes.size()));
    }
    return bytes.substr(std::min<std::uint64_t>(range->offset, bytes.size()), range->length);
}

}  // namespace

Result<std::unique_ptr<RecordedStore>> RecordedStore::open(const std::string& directory, const std::string& store,
                                                           Timer& timer) {
    if (::access(ObjectRecord::path_in(directory).c_str(), F_OK) != 0) {
        return failure(ENOENT,
                       format("--cache-only: nothing was read or written with --cache-dir {} yet", escaped(directory)));
    }
    Result<std::unique_ptr<ObjectRecord>> record = ObjectRecord::open_to_read(directory, store);
    if (!record) {
        return failure(std::move(record.error()));
    }
    const Result<std::string> damage = (*record)->find_damage();
    if (!damage || !damage->empty()) {
        log_warning(format("--cache-only: {} is damaged, and names may be missing: {}",
                           escaped(ObjectRecord::path_in(directory)),
                           escaped(damage ? *damage : damage.error().message)));
    }
    return std::unique_ptr<RecordedStore>(new RecordedStore(std::move(*record), timer));
}

RecordedStore::RecordedStore(std::unique_ptr<ObjectRecord> record, Timer& timer)
    : record_(std::make_shared<Record>(std::move(record))), reads_(1, timer) {}

bool RecordedStore::stop() {
    is_stopped_ = true;
    return reads_.stop(reads_.hangs() ? Milliseconds(0) : kAnswersWithin);
}

template <class T>
void RecordedStore::ask(std::function<Result<T>(ObjectRecord&)> question, StoreDone<T> done) {
    if (is_stopped_) {
        done(failure(ECANCELED, "the mount ends"));
        return;
    }
    reads_.within(
        kAnswersWithin,
        [record = record_, question = std::move(question), done]() -> DiskThreads::Deliver {
            const MutexLock lock(record->mutex);
            return [answer = question(*record->record), done] { done(answer); };
        },
        [done] { done(failure(EIO, "--cache-dir: the disk does not answer")); });
}

void RecordedStore::head(std::string key, StoreDone<ObjectInfo> done) {
    ask<ObjectInfo>(
        [key = std::move(key)](ObjectRecord& record) -> Result<ObjectInfo> {
            Result<std::optional<SeenObject>> seen = record.find(key);
            if (!seen) {
                return failure(std::move(seen.error()));
            }
            if (!*seen) {
                return failure(ENOENT, format("{}: this node has not seen it", escaped(key)));
            }
            return std::move((*seen)->info);
        },
        std::move(done));
}

void RecordedStore::get(GetRequest request, StoreDone<GetResponse> done) {
    const auto asked = std::make_shared<GetRequest>(std::move(request));
    ask<Found>([asked](ObjectRecord& record) { return find(record, *asked); },
               [asked, done = std::move(done)](Result<Found> found) {
                   if (!found) {
                       done(failure(std::move(found.error())));
                       return;
                   }
                   const std::string_view bytes = cut(found->body, asked->range);
                   if (!bytes.empty() && asked->on_body && !asked->on_body(as_bytes(bytes))) {
                       done(failure(ECANCELED, format("{}: given up", escaped(asked->key))));
                       return;
                   }
                   GetResponse response;
                   response.offset = static_cast<std::uint64_t>(bytes.data() - found->body.data());
                   response.length = bytes.size();
                   response.object = std::move(found->info);
                   done(std::move(response));
               });
}

void RecordedStore::list(ListRequest request, StoreDone<ListResponse> done) {
    ask<ListResponse>([request = std::move(request)](ObjectRecord& record) { return record.list(request); },
                      std::move(done));
}

void RecordedStore::put(PutRequest request, StoreDone<PutResponse> done) {
    done(changes_nothing(request.key));
}
void RecordedStore::copy(CopyRequest request, StoreDone<PutResponse> done) {
    done(changes_nothing(request.key));
}
void RecordedStore::remove(RemoveRequest request, StoreDone<void> done) {
    done(changes_nothing(request.key));
}
void RecordedStore::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    done(changes_nothing(requests.empty() ? "" : requests.front().key));
}
void RecordedStore::create_upload(CreateUploadRequest request, StoreDone<UploadId> done) {
    done(changes_nothing(request.key));
}
void RecordedStore::upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) {
    done(changes_nothing(request.upload.key));
}
void RecordedStore::upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) {
    done(changes_nothing(request.upload.key));
}
void RecordedStore::complete_upload(CompleteRequest request, StoreDone<PutResponse> done) {
    done(changes_nothing(request.upload.key));
}
void RecordedStore::abort_upload(UploadId upload, StoreDone<void> done) {
    done(changes_nothing(upload.key));
}
void RecordedStore::list_uploads(std::string /*prefix*/, StoreDone<std::vector<OpenUpload>> done) {
    done(std::vector<OpenUpload>());
}
void RecordedStore::list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) {
    done(changes_nothing(upload.key));
}

}  // namespace ckptfs
