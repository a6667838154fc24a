// SPDX-License-Identifier: Apache-2.0
// The executors of a mount.
//
// Make them after the process has gone to the background: threads do not survive fork().
#pragma once

#include <memory>
#include <string>

#include "ckptfs/executor.h"

namespace ckptfs {

// For computation: one thread a processor. A plain queue: oneTBB, whose workers look for work for a while before they
// sleep, took 0.1 to 0.2 s of CPU a GB more for tasks as large and as few as these.
[[nodiscard]] std::unique_ptr<Executor> make_executor();

// For tasks that wait: namespace operations and staging files.
[[nodiscard]] std::unique_ptr<Executor> make_blocking_executor(int threads);

// A detached thread for each task: for tasks that may hang for good. A task whose thread cannot be started is logged
// and dropped.
[[nodiscard]] std::unique_ptr<Executor> make_detached_executor(std::string thread_name);

// Processors this process may run on, at least 1.
[[nodiscard]] int processor_count();

}  // namespace ckptfs
