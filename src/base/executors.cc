// SPDX-License-Identifier: Apache-2.0
#include "base/executors.h"

#include <algorithm>
#include <thread>

#include "base/thread_pool.h"

namespace ckptfs {

std::unique_ptr<Executor> make_executor() {
    return std::make_unique<ThreadPool>("ckptfs-compute", processor_count());
}

std::unique_ptr<Executor> make_blocking_executor(int threads) {
    return std::make_unique<ThreadPool>("ckptfs-blocking", threads);
}

int processor_count() {
    // libstdc++ asks sched_getaffinity, so that a taskset or a cpuset counts.
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace ckptfs
