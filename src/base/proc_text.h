// SPDX-License-Identifier: Apache-2.0
// What the files of /proc say (proc(5)). Pure: text in, values out; empty if the text is not what it should be.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

// /proc/TID/stat
struct TaskStat {
    // PF_EXITING.
    bool exiting = false;
    // The task has closed what it had open, and waits for its parent to ask how it ended.
    bool has_ended = false;
    // By a signal or a tracer.
    bool is_stopped = false;
    // As wait(2) encodes it. Reads 0 without the right to trace the process.
    int exit_code = 0;
};
[[nodiscard]] std::optional<TaskStat> parse_task_stat(std::string_view text);

// /proc/TID/status
struct TaskStatus {
    pid_t thread_group = 0;
    // For the thread or for its whole process.
    bool sigkill_pending = false;
    // For the whole process: sent by kill(2). Those that exec(2) and exit_group(2) send are for single threads.
    bool process_sigkill_pending = false;
    // Linux 4.15 and later.
    bool is_dumping_core = false;
};
[[nodiscard]] std::optional<TaskStatus> parse_task_status(std::string_view text);

// Whether CapEff holds CAP_SYS_PTRACE.
[[nodiscard]] bool may_trace_everyone(std::string_view status_text);

// /proc/TID/task/TID/children
[[nodiscard]] std::vector<pid_t> parse_children(std::string_view text);

// /proc/TID/syscall of a thread that waits in open(2) or openat(2)
struct OpenCall {
    // Where the path lies in the memory of its process.
    std::uint64_t path = 0;
    int flags = 0;
};
[[nodiscard]] std::optional<OpenCall> parse_open_call(std::string_view text);

// Whether the last component of the path is this name, and no other is.
[[nodiscard]] bool only_ends_in(std::string_view path, std::string_view name);

// /proc/PID/fdinfo/FD
struct DescriptorInfo {
    std::uint64_t inode = 0;
    int mount_id = 0;
    // O_RDONLY, O_WRONLY or O_RDWR, or the one that grants neither.
    int access = 0;
    bool writable = false;
    bool closed_by_exec = false;
};
// Empty also before Linux 5.14, whose fdinfo does not show the inode.
[[nodiscard]] std::optional<DescriptorInfo> parse_descriptor_info(std::string_view text);

// /proc/PID/mountinfo. The same filesystem has another id, but the same device, if it is bound elsewhere or seen from
// another mount namespace.
struct MountIdentity {
    int mount_id = 0;
    // "MAJOR:MINOR"
    std::string device;
};
// The topmost mount on exactly this directory.
[[nodiscard]] std::optional<MountIdentity> find_mount_on(std::string_view mountinfo, std::string_view directory);
[[nodiscard]] std::optional<MountIdentity> find_mount_by_id(std::string_view mountinfo, int mount_id);

// /proc/locks: whether a lock on the inode is held, by flock(2) or fcntl(2), and by this process, if one is named.
// `device`: as in MountIdentity.
[[nodiscard]] bool is_locked(std::string_view locks, std::string_view device, std::uint64_t inode,
                             std::optional<pid_t> process);

}  // namespace ckptfs
