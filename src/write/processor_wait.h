// SPDX-License-Identifier: Apache-2.0
// How long the calling thread has waited for a processor while it could have run.
#pragma once

#include <chrono>
#include <optional>

namespace ckptfs {

struct ProcessorTimes {
    std::chrono::nanoseconds ran{0};
    std::chrono::nanoseconds waited{0};
};

// Times since the thread began, from /proc/thread-self/schedstat (Documentation/scheduler/sched-stats.rst of the
// kernel). Empty if the kernel does not count.
[[nodiscard]] std::optional<ProcessorTimes> processor_times();

}  // namespace ckptfs
