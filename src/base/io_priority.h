// SPDX-License-Identifier: Apache-2.0
// The I/O priority of a thread: ioprio_set(2), which has no wrapper. <linux/ioprio.h> is of no use here: that of Linux
// 6.1.192 and later does not compile as C++.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace ckptfs {

// IOPRIO_WHO_PROCESS, IOPRIO_CLASS_SHIFT, IOPRIO_CLASS_IDLE.
inline constexpr int kIoPriorityOfThread = 1;
inline constexpr int kIoPriorityClassShift = 13;
inline constexpr int kIoPriorityClassIdle = 3;

// Makes the calling thread yield to all others.
inline void take_idle_io_priority() {
    static_cast<void>(::syscall(SYS_ioprio_set, kIoPriorityOfThread, 0, kIoPriorityClassIdle << kIoPriorityClassShift));
}

[[nodiscard]] inline bool has_idle_io_priority(pid_t thread) {
    const long priority = ::syscall(SYS_ioprio_get, kIoPriorityOfThread, thread);
    return priority >= 0 && priority >> kIoPriorityClassShift == kIoPriorityClassIdle;
}

}  // namespace ckptfs
