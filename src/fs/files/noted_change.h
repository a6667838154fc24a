// SPDX-License-Identifier: Apache-2.0
// A change of a version on its way to the version's FileWriter.
//
// The change is noted before it is handed over, and once more if a commit has begun by then, which may have missed it.
// Once its caller may have been answered nothing is noted: what the caller does then, such as a close, covers the
// change.
//
// Threads: settle() may be called by several, and while the change is being handed over.
#pragma once

#include <functional>
#include <utility>

#include "base/mutex.h"
#include "fs/state/version_fate.h"

namespace ckptfs::fs {

class NotedChange {
public:
    // `note` is called at once, and may be called again by settle() with the mutex held.
    NotedChange(const VersionFate& fate, std::function<void()> note)
        : fate_(fate), note_(std::move(note)), generation_(fate.generation()) {
        note_();
    }

    // Called when the writer has the change, and before the caller is answered: the first call counts.
    void settle() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        if (!std::exchange(is_settled_, true) && fate_.generation() != generation_) {
            note_();
        }
    }

private:
    const VersionFate& fate_;
    const std::function<void()> note_;
    const VersionFate::Generation generation_;
    Mutex mutex_;
    bool is_settled_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs::fs
