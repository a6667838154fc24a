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

// A thread for each task, which nobody waits for: for what may hang for good. A task for which there is no thread is
// logged and left out.
[[nodiscard]] std::unique_ptr<Executor> make_detached_executor(std::string thread_name);

// Processors this process may run on, at least 1.
[[nodiscard]] int processor_count();

}  // namespace ckptfs
