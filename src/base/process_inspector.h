// SPDX-License-Identifier: Apache-2.0
// ProcessInspector on /proc.
//
// What it can see depends on rights: descriptors and exit codes of another user's process need CAP_SYS_PTRACE, and
// those of a process in a PID namespace that is not ours or below it do not exist for us (FUSE then passes pid 0).
//
// An exit code that we may not see reads as 0, like that of an ordinary exit. The two are told apart by the fdinfo
// directory of the same task, which the kernel opens under the same condition (ptrace(2), PTRACE_MODE_READ_FSCREDS):
// kExiting if it opens, kUnknown if it is refused.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/executors.h"
#include "base/mutex.h"
#include "base/proc_text.h"
#include "ckptfs/processes.h"
#include "ckptfs/status.h"

namespace ckptfs {

enum class ExitCodeSight : std::uint8_t {
    kNone,
    kOwnUser,    // processes of our own user with no more capabilities than ours
    kEveryUser,  // CAP_SYS_PTRACE
};

class ProcInspector final : public ProcessInspector {
public:
    // Until this is called, an inode number counts on any filesystem. ENOENT if nothing is mounted on exactly this
    // directory. Reads mountinfo; the directory itself is not touched.
    Status set_mount_point(const std::string& directory);

    [[nodiscard]] std::optional<pid_t> thread_group(pid_t thread) const override;
    [[nodiscard]] std::optional<int> writable_descriptors(pid_t process, std::uint64_t inode,
                                                          int access) const override;
    // Processes that we may not look into count as not writing.
    [[nodiscard]] bool written_by_others(std::uint64_t inode, pid_t except) const override;
    // Looks at 4,096 descendants at most.
    [[nodiscard]] bool handed_down(std::uint64_t inode, pid_t process) const override;
    [[nodiscard]] ExitState exit_state(pid_t thread) const override;
    [[nodiscard]] bool is_being_killed(pid_t process) const override;
    [[nodiscard]] bool is_locked(std::uint64_t inode, std::optional<pid_t> process) const override;
    // Needs the right to attach to the process (ptrace(2), PTRACE_MODE_ATTACH_FSCREDS): CAP_SYS_PTRACE, or one's own
    // user where Yama allows that.
    [[nodiscard]] bool makes_anew(pid_t thread, std::string_view name) const override;
    [[nodiscard]] bool is_in_background(pid_t thread) const override;
    [[nodiscard]] bool is_dying(pid_t thread) const override;

private:
    [[nodiscard]] std::optional<MountIdentity> mount() const;
    [[nodiscard]] std::optional<std::string> string_of(pid_t thread, std::uint64_t address) const;

    // How many strings are being read, each on a thread of its own.
    using Reading = std::shared_ptr<std::atomic<int>>;
    const Reading reading_ = std::make_shared<std::atomic<int>>(0);
    const std::unique_ptr<Executor> readers_ = make_detached_executor("ckptfs-peek");

    mutable Mutex mutex_;
    std::optional<MountIdentity> mount_ GUARDED_BY(mutex_);
};

// Of which users' processes the kernel shows how they ended, as the rules for killed writers need it: kills a child and
// looks. Forks, so call it before the first thread is started.
[[nodiscard]] ExitCodeSight exit_code_sight();

}  // namespace ckptfs
