// SPDX-License-Identifier: Apache-2.0
// Files that a mount was writing when it was killed, before what it left in the bucket is removed.
//
// As long as the upload of such a file is there, other mounts treat the file as one that is being written, and commit
// no marker over it. The next mount ends the upload; it records the file as failed first, so that at no moment the
// bucket looks as if nothing were missing.
//
// Threads: record() may be called from any thread and returns at once; replies come on any thread.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/file_operations.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class UnfinishedFiles {
public:
    explicit UnfinishedFiles(SharedState& state) : state_(state) {}

    // Records the file as failed; may be called again for a file. Success if other mounts know of it, or there is
    // nothing to know: what is left of the file may be removed.
    void record(UnfinishedFile file, Reply<void> reply);
    // Adds a failure as it was noted (`record`). Returns at once; until others know of it, this mount does.
    void recall(const std::string& key, const std::string& record);

private:
    // When the upload of what is left was begun, or the hidden object written; empty if it is no longer there.
    void find_beginning(const UnfinishedFile& file, Reply<std::optional<WallTime>> reply);
    struct Beginning {
        WallTime time;
        // True: `time` is by the store's clock; false: by the mount's, which may be some seconds off.
        bool is_store_time = false;
        // As in UnfinishedFile.
        WallTime earlier_sent{};
        std::string earlier_etag{};
    };
    // Whether the object was there, in the bucket or on the disk, before the file was begun, whatever its date.
    [[nodiscard]] bool is_earlier(const ObjectInfo& object, const Beginning& begun) const;
    void judge(const std::string& key, const Beginning& begun, Reply<void> reply);
    void judge_directories(const std::string& key, const Beginning& begun, const std::string& etag_before,
                           Reply<void> reply);
    void add(FailedFile file, WallTime began, Reply<void> reply);

    SharedState& state_;
    Mutex mutex_;
    // Keys that record() has added as failed: called again, it does not bring back what was cleared since.
    std::set<std::string> added_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
