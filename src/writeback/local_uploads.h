// SPDX-License-Identifier: Apache-2.0
// Multipart uploads whose parts go to the disk. Until one is completed nothing of it outlives the process.
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
    // A part that is there already.
    Result<UploadedPart> add(const UploadId& upload, int part_number, BodyPiece piece);
    struct Completed {
        CreateUploadRequest request;
        Body body;
        std::uint64_t size = 0;
    };
    // All of it is on the disk. It stays open.
    Result<Completed> complete(const UploadId& upload, const std::vector<UploadedPart>& parts);
    // What it had before, or all of it where the upload has ended, comes back in `writing`.
    void note_begun(const UploadId& upload, UnsentChanges::Writing& writing);
    // Of what was noted, which has none from then on; empty where nothing was.
    [[nodiscard]] std::string take_announcement(const UploadId& upload);
    // False where it has ended, or has another one.
    [[nodiscard]] bool take_back(const UploadId& upload, const std::string& announcement);
    // Gives back what was noted.
    UnsentChanges::Writing end(const UploadId& upload);
    Result<std::vector<UploadedPart>> parts(const UploadId& upload) const;
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
