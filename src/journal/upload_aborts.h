// SPDX-License-Identifier: Apache-2.0
// Aborts uploads, and goes on trying where the store fails.
//
// The store's client gives up after --retry-for. An upload that stays is paid for, and looks to every mount like a file
// that is being written: markers wait for it. So the abort is tried again, after pauses that grow to a minute, as long
// as the mount lives, and once when it ends. What is left then is in the journal, for the next mount. Where the store
// does not allow the abort, the upload is left to a lifecycle rule of the bucket.
//
// Ownership: store, timer and journal outlive it and every callback. Threads: all functions may be called from any
// thread.
#pragma once

#include <functional>
#include <memory>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "journal/mount_journal.h"

namespace ckptfs {

class UploadAborts {
public:
    UploadAborts(ObjectStore& store, Timer& timer, MountJournal& journal);
    ~UploadAborts();
    UploadAborts(const UploadAborts&) = delete;
    UploadAborts& operator=(const UploadAborts&) = delete;

    // As ObjectStore::abort_upload(); `done` has the result of the first try.
    void abort(const UploadId& upload, StoreDone<void> done);
    // Whether an abort of the upload has failed: no file comes of it, whether or not it is tried again.
    [[nodiscard]] bool is_left(const UploadId& upload) const;
    // An upload has saved the file of this key: its uploads for which abort() was called before mean no failure any
    // more, for the next mount either.
    void saved(const std::string& key);
    // For the end of the mount: tries once more what is left, and calls `ended` when nothing is in flight. If `ended`
    // is null, as in the destructor, it does not try.
    void stop(std::function<void()> ended);

private:
    class Tries;
    const std::shared_ptr<Tries> tries_;
};

}  // namespace ckptfs
