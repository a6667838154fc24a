// SPDX-License-Identifier: Apache-2.0
// The files that a mount writes to a disk that acknowledges them (--ack disk): each has an intent in the journal until
// it is acknowledged, so that the next mount knows of those that were not finished.
//
// By the times of both the next mount sees whether the file was saved after all. A version that was acknowledged before
// may be sent, and dated by the store, only after this one was begun: the journal says so.
//
// Ownership: journal and clock outlive it. Threads: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "journal/mount_journal.h"

namespace ckptfs {

class FilesBegun {
public:
    FilesBegun(MountJournal& journal, const Clock& clock) : journal_(journal), clock_(clock) {}

    // For end().
    [[nodiscard]] UploadIntent begin(const std::string& key) {
        const WallTime now = clock_.wall_now();
        UploadIntent intent = journal_.intend(key, now);
        const MutexLock lock(mutex_);
        open_.emplace(std::pair(key, intent.number), now);
        return intent;
    }
    void end(const UploadIntent& intent) {
        {
            const MutexLock lock(mutex_);
            open_.erase({intent.key, intent.number});
        }
        journal_.intent_ended(intent);
    }
    // What was acknowledged at that time is in the bucket now.
    void sent(const std::string& key, WallTime acknowledged) {
        const MutexLock lock(mutex_);
        for (auto each = open_.lower_bound({key, 0}); each != open_.end() && each->first.first == key; ++each) {
            if (each->second >= acknowledged) {
                journal_.intent_outlived({key, each->second, each->first.second, false, clock_.wall_now()});
            }
        }
    }

private:
    MountJournal& journal_;
    const Clock& clock_;
    Mutex mutex_;
    // By their keys, and their numbers in the journal: when they were begun.
    std::map<std::pair<std::string, std::uint64_t>, WallTime> open_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
