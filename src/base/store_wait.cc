// SPDX-License-Identifier: Apache-2.0
#include "base/store_wait.h"

#include <optional>

namespace ckptfs {

namespace {

struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t under_way = 0;
    std::optional<Error> first_failure;
};

}  // namespace

Status for_each_in_parallel(std::size_t count, std::size_t limit,
                            const std::function<void(std::size_t, std::function<void(Status)>)>& start) {
    auto progress = std::make_shared<Progress>();
    std::unique_lock lock(progress->mutex);
    for (std::size_t index = 0; index < count; ++index) {
        progress->changed.wait(lock, [&] { return progress->under_way < limit; });
        if (progress->first_failure) {
            break;
        }
        ++progress->under_way;
        lock.unlock();
        start(index, [progress](Status status) {
            std::lock_guard done_lock(progress->mutex);
            --progress->under_way;
            if (!status && !progress->first_failure) {
                progress->first_failure = std::move(status.error());
            }
            progress->changed.notify_all();
        });
        lock.lock();
    }
    progress->changed.wait(lock, [&] { return progress->under_way == 0; });
    if (progress->first_failure) {
        return failure(*progress->first_failure);
    }
    return {};
}

}  // namespace ckptfs
