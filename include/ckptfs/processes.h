// SPDX-License-Identifier: Apache-2.0
// What the kernel says about the processes that call us, read from /proc.
//
// Nothing that takes the caller's mmap lock is read on the calling thread, as cmdline, maps and environ are: that can
// deadlock with a page fault on the mount. Its memory is read by a thread that may hang, for which callers wait some
// milliseconds. Threads: all functions may be called from any thread; they block only on /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckptfs {

enum class ExitState : std::uint8_t {
    kRunning,
    kExiting,         // an ordinary exit
    kKilledBySignal,  // PF_EXITING and a signal in the exit code (proc(5), stat field 52, & 0x7f)
    kUnknown,         // not our PID namespace, no rights (CAP_SYS_PTRACE), or gone
};

class ProcessInspector {
public:
    static constexpr int kAnyAccess = -1;

    virtual ~ProcessInspector() = default;
    // The process of a thread: the pid in a FUSE request is a thread id. Empty if the thread is gone or in another PID
    // namespace.
    [[nodiscard]] virtual std::optional<pid_t> thread_group(pid_t thread) const = 0;
    // How many open descriptors of the process can write to this inode of our mount; counts only those opened with
    // `access` (O_WRONLY or O_RDWR, which no fcntl(2) changes), unless that is kAnyAccess. Empty if /proc cannot tell.
    [[nodiscard]] virtual std::optional<int> writable_descriptors(pid_t process, std::uint64_t inode,
                                                                  int access) const = 0;
    // True if a process other than `except` has a writable descriptor of the inode. Reads every process: for rare
    // questions only.
    [[nodiscard]] virtual bool written_by_others(std::uint64_t inode, pid_t except) const = 0;
    // True if a descendant of the process holds a writable descriptor of the inode that an exec would leave open: it
    // was handed over, as a child's standard output is, and not merely inherited by a fork.
    [[nodiscard]] virtual bool handed_down(std::uint64_t inode, pid_t process) const = 0;
    [[nodiscard]] virtual ExitState exit_state(pid_t thread) const = 0;
    // True if a signal ends the process and it may still have files open: first it may dump core, then it closes them
    // one after another, and /proc shows no descriptor from the first on.
    [[nodiscard]] virtual bool is_being_killed(pid_t process) const = 0;
    // True if `process`, or any process if that is empty, holds a lock on the inode of our mount, by flock(2) or
    // fcntl(2). False also if /proc cannot tell.
    [[nodiscard]] virtual bool is_locked(std::uint64_t inode, std::optional<pid_t> process) const = 0;
    // True if the thread waits in an open(2) that creates a file of this name again: O_CREAT and O_TRUNC without
    // O_EXCL, by a path whose last component, and no other, is the name. False also if that cannot be told.
    [[nodiscard]] virtual bool makes_anew(pid_t thread, std::string_view name) const = 0;
    // True if the thread yields to others: ioprio_set(2) has made its class IOPRIO_CLASS_IDLE.
    [[nodiscard]] virtual bool is_in_background(pid_t thread) const = 0;
    // True if a SIGKILL is pending or the thread is exiting: an interrupt may be honoured.
    [[nodiscard]] virtual bool is_dying(pid_t thread) const = 0;
};

}  // namespace ckptfs
