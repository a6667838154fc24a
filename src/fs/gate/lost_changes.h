// SPDX-License-Identifier: Apache-2.0
// Changes that a disk has acknowledged (--ack disk) and that will not be in the bucket as they were: each is a failure
// of the next fsync(2), and of the next close(2) of a file that is open for writing, of any process that hears of it.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/status.h"

namespace ckptfs::fs {

class LostChanges {
public:
    void add(const std::string& key, const Error& why) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        ++count_;
        for (Untold* const untold : {&of_sync_, &of_close_}) {
            if (untold->size() < kMostUntold) {
                untold->insert_or_assign(key, why);
            }
        }
    }
    // The key was written again or removed before the loss was reported.
    void made_good(const std::string& key) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        of_sync_.erase(key);
        of_close_.erase(key);
    }
    [[nodiscard]] std::uint64_t count() const EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return count_;
    }
    // Each change is reported once by fsync(2) and once by close(2); of several at a time one is named.
    Status tell_sync() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return told(std::exchange(of_sync_, {}));
    }
    Status tell_close() EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        return told(std::exchange(of_close_, {}));
    }

private:
    static constexpr std::size_t kMostUntold = 1'000;
    using Untold = std::map<std::string, Error>;

    static Status told(const Untold& untold) {
        if (untold.empty()) {
            return {};
        }
        const auto& [key, why] = *untold.begin();
        const std::string others = untold.size() > 1 ? format(" (and {} more)", untold.size() - 1) : "";
        Error error = why;
        error.errno_value = EIO;
        error.retryable = false;
        error.message =
            format("{}{}: was acknowledged by the disk, but will not be uploaded: {}", key, others, why.message);
        return failure(std::move(error));
    }

    mutable Mutex mutex_;
    std::uint64_t count_ GUARDED_BY(mutex_) = 0;
    Untold of_sync_ GUARDED_BY(mutex_);
    Untold of_close_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
