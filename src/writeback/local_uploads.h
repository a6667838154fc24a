// SPDX-License-Identifier: Apache-2.0
// Multipart uploads whose parts go to the disk. Until an upload is completed, nothing of it outlives the process.
//
// Threads: all functions may be called from any thread; write() waits for the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/overlay.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

class LocalUploads {
public:
    explicit LocalUploads(UnsentChanges& unsent) : unsent_(unsent) {}

    [[nodiscard]] UploadId create(CreateUploadRequest request);
    Result<UploadedPart> write(const UploadPartRequest& request);
    // Adds a part whose bytes exist already, in a file or in an object.
    Result<UploadedPart> add(const UploadId& upload, int part_number, BodyPiece piece);
    struct Completed {
        CreateUploadRequest request;
        Body body;
        std::uint64_t size = 0;
    };
    // Flushes all parts to the disk. The upload stays open.
    Result<Completed> complete(const UploadId& upload, const std::vector<UploadedPart>& parts);
    // Stores `writing` in the upload. Returns in it what was stored before, or leaves it as it is if the upload has
    // ended.
    void note_begun(const UploadId& upload, UnsentChanges::Writing& writing);
    // Takes the announcement out of what note_begun() stored; empty if there is none.
    [[nodiscard]] std::string take_announcement(const UploadId& upload);
    // Puts back an announcement. False if the upload has ended, or has another one.
    [[nodiscard]] bool take_back(const UploadId& upload, const std::string& announcement);
    // Ends the upload and returns what note_begun() stored.
    UnsentChanges::Writing end(const UploadId& upload);
    Result<std::vector<UploadedPart>> parts(const UploadId& upload) const;
    // Whether the upload was created here, not in the bucket.
    [[nodiscard]] static bool has_made(const UploadId& upload);

private:
    struct Part {
        UploadedPart uploaded;
        BodyPiece piece;
    };
    struct Upload {
        CreateUploadRequest request;
        std::shared_ptr<BodyFile> file;
        std::map<int, Part> parts;
        UnsentChanges::Writing writing;
    };
    Result<std::shared_ptr<BodyFile>> file_of(const UploadId& upload) EXCLUDES(mutex_);

    UnsentChanges& unsent_;
    mutable Mutex mutex_;
    std::map<std::string, Upload> uploads_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
