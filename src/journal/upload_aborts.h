// SPDX-License-Identifier: Apache-2.0
// Ends uploads, and goes on trying where the store does not.
//
// The store's client gives up after --retry-for. An upload that stays is paid for, and looks to every mount like a file
// that is being written: markers wait for it. So it is tried again, after pauses that grow to a minute, as long as the
// mount lives, and once when it ends. What is left then is in the journal, for the next mount. What the store does not
// allow is left to a lifecycle rule of the bucket.
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

    // As that of the store; tells of the first try.
    void abort(const UploadId& upload, StoreDone<void> done);
    // Whether it could not be ended: no file comes of it, whether or not it is tried again.
    [[nodiscard]] bool is_left(const UploadId& upload) const;
    // An upload has saved the file of this name: those of it that abort() was called for before make no failure of it,
    // for the next mount either.
    void saved(const std::string& key);
    // For the end of the mount: tries once more what is left, and calls `ended` when nothing is under way. Without
    // `ended` it does not try, as the destructor.
    void stop(std::function<void()> ended);

private:
    class Tries;
    const std::shared_ptr<Tries> tries_;
};

}  // namespace ckptfs
