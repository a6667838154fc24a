// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <optional>
#include <utility>

#include "writeback/store_rules.h"
#include "writeback/writeback_store.h"

namespace ckptfs {
void WritebackStore::create_upload(CreateUploadRequest request, StoreDone<UploadId> done) {
    if (is_direct(request.key)) {
        environment_.store.create_upload(std::move(request), std::move(done));
        return;
    }
    takes_bytes();
    const UploadId upload = uploads_.create(std::move(request));
    unsent_->begin_writing(upload.key, [this, id = upload](UnsentChanges::Writing writing) {
        uploads_.note_begun(id, writing);
        unsent_->end_writing(writing);
    });
    done(upload);
}

void WritebackStore::upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) {
    if (!LocalUploads::has_made(request.upload)) {
        environment_.store.upload_part(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    environment_.disk.post([this, request = std::move(request), done = std::move(done)]() mutable {
        takes_bytes();
        Result<UploadedPart> part = uploads_.write(request);
        takes_bytes();
        // Frees the memory before the caller goes on.
        request.body = {};
        done(std::move(part));
    });
}

// Copies nothing now: by the time the upload is sent, its source is in the bucket.
void WritebackStore::upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) {
    if (!LocalUploads::has_made(request.upload)) {
        environment_.store.upload_part_copy(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    const std::string source = request.source_key;
    head(source, [this, request = std::move(request), done = std::move(done)](const Result<ObjectInfo>& object) {
        if (!object) {
            done(failure(object.error()));
            return;
        }
        if (!request.source_if_match.empty() && request.source_if_match != object->etag) {
            done(another_version(request.source_key));
            return;
        }
        const std::optional<ByteRange> range = range_in(request.range, object->size);
        if (!range) {
            done(invalid_range(request.source_key));
            return;
        }
        done(uploads_.add(
            request.upload, request.part_number,
            BodyPiece::of_object(request.source_key, object->etag, range->offset, range->length, object->size)));
    });
}

bool WritebackStore::lacks_part_copy(const std::string& source_key) const {
    return environment_.store.lacks_part_copy(source_key);
}

void WritebackStore::find_part_copy(std::string key, std::function<void()> found) {
    environment_.store.find_part_copy(std::move(key), std::move(found));
}

void WritebackStore::complete_upload(CompleteRequest request, StoreDone<PutResponse> done) {
    if (!LocalUploads::has_made(request.upload)) {
        environment_.store.complete_upload(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    Conditions conditions{request.upload.key, request.if_none_match, ""};
    check(std::move(conditions), [this, request = std::move(request), done = std::move(done)](const Status& hold) {
        if (!hold) {
            done(failure(hold.error()));
            return;
        }
        environment_.disk.post([this, request, done] { complete(request, done); });
    });
}

void WritebackStore::complete(const CompleteRequest& request, StoreDone<PutResponse> done) {
    Result<LocalUploads::Completed> completed = uploads_.complete(request.upload, request.parts);
    if (!completed) {
        done(failure(std::move(completed.error())));
        return;
    }
    UnsentChange change;
    change.object.key = request.upload.key;
    change.object.size = completed->size;
    change.object.metadata = std::move(completed->request.metadata);
    change.object.content_type = std::move(completed->request.content_type);
    change.object.content_encoding = std::move(completed->request.content_encoding);
    change.object.storage_class = std::move(completed->request.storage_class);
    change.object.other_headers = std::move(completed->request.other_headers);
    change.if_none_match = request.if_none_match;
    change.body = completed->body.pieces;
    UnsentChanges::Announced announced;
    announced.announcement = uploads_.take_announcement(request.upload);
    announced.takes_back = [this, upload = request.upload](const std::string& announcement) {
        return uploads_.take_back(upload, announcement);
    };
    acknowledge(std::move(change), std::move(completed->body), request.may_send, std::move(announced),
                [this, upload = request.upload, done = std::move(done)](Result<PutResponse> response) {
                    if (response) {
                        end_upload(upload);
                    }
                    done(std::move(response));
                });
}

void WritebackStore::abort_upload(UploadId upload, StoreDone<void> done) {
    if (!LocalUploads::has_made(upload)) {
        environment_.store.abort_upload(std::move(upload), std::move(done));
        return;
    }
    end_upload(upload);
    done({});
}

void WritebackStore::end_upload(const UploadId& upload) {
    unsent_->end_writing(uploads_.end(upload));
}

void WritebackStore::list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) {
    environment_.store.list_uploads(std::move(prefix), std::move(done));
}

void WritebackStore::list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) {
    if (!LocalUploads::has_made(upload)) {
        environment_.store.list_parts(std::move(upload), std::move(done));
        return;
    }
    done(uploads_.parts(upload));
}

}  // namespace ckptfs
