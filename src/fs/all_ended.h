// SPDX-License-Identifier: Apache-2.0
// Replies once when several operations, and the caller that starts them, are done; with the first failure among them.
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <utility>

#include "base/mutex.h"
#include "fs/file_operations.h"

namespace ckptfs::fs {

class AllEnded {
public:
    AllEnded(std::size_t count, Reply<void> reply) : reply_(std::move(reply)), left_(count + 1) {}

    void one_more(const Status& status) {
        Status all;
        {
            const MutexLock lock(mutex_);
            if (!status && status_) {
                status_ = status;
            }
            if (--left_ > 0) {
                return;
            }
            all = status_;
        }
        reply_(all);
    }

private:
    const Reply<void> reply_;

    Mutex mutex_;
    std::size_t left_ GUARDED_BY(mutex_);
    Status status_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
