// SPDX-License-Identifier: Apache-2.0
#include "writeback/local_uploads.h"

#include <cerrno>
#include <utility>

#include "base/text.h"
#include "base/uuid.h"

namespace ckptfs {
namespace {

constexpr std::string_view kIdBeginning = "disk-";

Failure no_such_upload(const UploadId& upload) {
    Error error;
    error.errno_value = EIO;
    error.s3_code = "NoSuchUpload";
    error.http_status = 404;
    error.message = upload.key + ": no such upload";
    return failure(std::move(error));
}

}  // namespace

bool LocalUploads::has_made(const UploadId& upload) {
    return upload.id.starts_with(kIdBeginning);
}

UploadId LocalUploads::create(CreateUploadRequest request) {
    UploadId upload{request.key, std::string(kIdBeginning) + random_uuid()};
    const MutexLock lock(mutex_);
    uploads_[upload.id].request = std::move(request);
    return upload;
}

Result<std::shared_ptr<BodyFile>> LocalUploads::file_of(const UploadId& upload) {
    {
        const MutexLock lock(mutex_);
        const auto found = uploads_.find(upload.id);
        if (found == uploads_.end()) {
            return no_such_upload(upload);
        }
        if (found->second.file != nullptr) {
            return found->second.file;
        }
    }
    // Without the lock: the disk may hang.
    Result<std::shared_ptr<BodyFile>> file = unsent_.new_file();
    if (!file) {
        return file;
    }
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    if (found == uploads_.end()) {
        return no_such_upload(upload);
    }
    // Two parts may come at once.
    std::shared_ptr<BodyFile>& first = found->second.file;
    if (first == nullptr) {
        first = std::move(*file);
    }
    return first;
}

Result<UploadedPart> LocalUploads::write(const UploadPartRequest& request) {
    const Result<std::shared_ptr<BodyFile>> file = file_of(request.upload);
    if (!file) {
        return failure(file.error());
    }
    Result<BodyPiece> piece = unsent_.write(**file, request.body);
    if (!piece) {
        return failure(std::move(piece.error()));
    }
    if (checksum_of(*piece) != request.crc32c) {
        return damage(request.upload.key + ": part " + std::to_string(request.part_number) +
                      " has changed in memory: the memory of this machine may be failing");
    }
    return add(request.upload, request.part_number, std::move(*piece));
}

Result<UploadedPart> LocalUploads::add(const UploadId& upload, int part_number, BodyPiece piece) {
    UploadedPart uploaded;
    uploaded.part_number = part_number;
    uploaded.etag = format("\"{}-{}\"", part_number, random_uuid());
    uploaded.size = piece.size;
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    if (found == uploads_.end()) {
        return no_such_upload(upload);
    }
    found->second.parts.insert_or_assign(part_number, Part{uploaded, std::move(piece)});
    return uploaded;
}

Result<LocalUploads::Completed> LocalUploads::complete(const UploadId& upload, const std::vector<UploadedPart>& parts) {
    Completed completed;
    {
        const MutexLock lock(mutex_);
        const auto found = uploads_.find(upload.id);
        if (found == uploads_.end()) {
            return no_such_upload(upload);
        }
        completed.request = found->second.request;
        if (found->second.file != nullptr) {
            completed.body.files.push_back(found->second.file);
        }
        for (const UploadedPart& part : parts) {
            const auto sent = found->second.parts.find(part.part_number);
            if (sent == found->second.parts.end() || sent->second.uploaded.etag != part.etag) {
                return failure(EIO,
                               format("{}: part {} is not the one that was written", upload.key, part.part_number));
            }
            if (sent->second.piece.size > 0) {
                completed.body.pieces.push_back(sent->second.piece);
            }
            completed.size += sent->second.piece.size;
        }
    }
    for (const std::shared_ptr<BodyFile>& file : completed.body.files) {
        if (Status synced = file->sync(); !synced) {
            return failure(std::move(synced.error()));
        }
    }
    return completed;
}

std::string LocalUploads::take_announcement(const UploadId& upload) {
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    return found == uploads_.end() ? "" : std::exchange(found->second.writing.announcement, "");
}

bool LocalUploads::take_back(const UploadId& upload, const std::string& announcement) {
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    // The announcement of begin_writing() may have come since.
    const bool has_none = found != uploads_.end() && found->second.writing.announcement.empty();
    if (has_none) {
        found->second.writing.announcement = announcement;
    }
    return has_none;
}

void LocalUploads::note_begun(const UploadId& upload, UnsentChanges::Writing& writing) {
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    if (found != uploads_.end()) {
        // The announcement of a failed acknowledgement may have been put back before.
        std::swap(found->second.writing, writing);
    }
}

UnsentChanges::Writing LocalUploads::end(const UploadId& upload) {
    Upload ended;
    const MutexLock lock(mutex_);
    if (const auto found = uploads_.find(upload.id); found != uploads_.end()) {
        ended = std::move(found->second);
        uploads_.erase(found);
    }
    return std::move(ended.writing);
}

Result<std::vector<UploadedPart>> LocalUploads::parts(const UploadId& upload) const {
    const MutexLock lock(mutex_);
    const auto found = uploads_.find(upload.id);
    if (found == uploads_.end()) {
        return no_such_upload(upload);
    }
    std::vector<UploadedPart> parts;
    for (const auto& [number, part] : found->second.parts) {
        parts.push_back(part.uploaded);
    }
    return parts;
}

}  // namespace ckptfs
