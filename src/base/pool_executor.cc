// SPDX-License-Identifier: Apache-2.0
// Takes the place of tbb_executor.cc in builds for ThreadSanitizer.
#include "base/executors.h"
#include "base/thread_pool.h"

namespace ckptfs {

std::unique_ptr<Executor> make_executor() {
    return std::make_unique<ThreadPool>("ckptfs-compute", processor_count());
}

}  // namespace ckptfs
