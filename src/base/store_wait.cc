// SPDX-License-Identifier: Apache-2.0
#include "base/store_wait.h"

#include <optional>

#include "base/mutex.h"

namespace ckptfs {

namespace {

struct Progress {
    Mutex mutex;
    Condition changed;
    std::size_t under_way GUARDED_BY(mutex) = 0;
    std::optional<Error> first_failure GUARDED_BY(mutex);
};

}  // namespace

Status for_each_in_parallel(std::size_t count, std::size_t limit,
                            const std::function<void(std::size_t, std::function<void(Status)>)>& start) {
    auto progress = std::make_shared<Progress>();
    MutexLock lock(progress->mutex);
    for (std::size_t index = 0; index < count; ++index) {
        progress->changed.wait(lock, [&]() REQUIRES(progress->mutex) { return progress->under_way < limit; });
        if (progress->first_failure) {
            break;
        }
        ++progress->under_way;
        lock.unlock();
        start(index, [progress](Status status) {
            const MutexLock done_lock(progress->mutex);
            --progress->under_way;
            if (!status && !progress->first_failure) {
                progress->first_failure = std::move(status.error());
            }
            progress->changed.notify_all();
        });
        lock.lock();
    }
    progress->changed.wait(lock, [&]() REQUIRES(progress->mutex) { return progress->under_way == 0; });
    if (progress->first_failure) {
        return failure(*progress->first_failure);
    }
    return {};
}

}  // namespace ckptfs
