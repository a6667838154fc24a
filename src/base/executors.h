// SPDX-License-Identifier: Apache-2.0
// The executors of a mount.
//
// Make them after the process has gone to the background: threads do not survive fork().
#pragma once

#include <memory>

#include "ckptfs/executor.h"

namespace ckptfs {

// For computation: one thread a processor. oneTBB, except in builds for ThreadSanitizer, where its uninstrumented
// library would be reported as racing; there it is a plain pool.
[[nodiscard]] std::unique_ptr<Executor> make_executor();

// For tasks that wait: namespace operations and staging files.
[[nodiscard]] std::unique_ptr<Executor> make_blocking_executor(int threads);

// Processors this process may run on, at least 1.
[[nodiscard]] int processor_count();

}  // namespace ckptfs
