// SPDX-License-Identifier: Apache-2.0
#include "base/process_inspector.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <climits>
#include <csignal>
#include <future>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/io_priority.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

struct DirectoryCloser {
    void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirectoryCloser>;

Directory open_directory(const std::string& path) {
    return Directory(opendir(path.c_str()));
}

// Entries that are numbers: processes, threads, descriptors.
std::optional<int> next_number(const Directory& directory) {
    while (const dirent* entry = readdir(directory.get())) {
        if (const auto value = whole_number<int>(entry->d_name)) {
            return value;
        }
    }
    return std::nullopt;
}

std::optional<std::string> read_of_task(pid_t task, const char* file) {
    return read_text_file(AT_FDCWD, format("/proc/{}/{}", task, file).c_str());
}

std::optional<TaskStat> stat_of(pid_t task) {
    const auto text = read_of_task(task, "stat");
    return text ? parse_task_stat(*text) : std::nullopt;
}

std::optional<TaskStatus> status_of(pid_t task) {
    const auto text = read_of_task(task, "status");
    return text ? parse_task_status(*text) : std::nullopt;
}

// The same directory of the same filesystem may be bound elsewhere, or the process may live in a container with mounts
// of its own: then the ids differ, but not the device.
bool is_on_mount(pid_t process, const DescriptorInfo& descriptor, const std::optional<MountIdentity>& mount) {
    if (!mount || descriptor.mount_id == mount->mount_id) {
        return true;
    }
    const auto mountinfo = read_of_task(process, "mountinfo");
    const auto found = mountinfo ? find_mount_by_id(*mountinfo, descriptor.mount_id) : std::nullopt;
    return found && found->device == mount->device;
}

// seq_file(9): what a page has room for, less the longest line of /proc/locks.
constexpr std::size_t kLocksToldAtOnce = 3840;
constexpr int kMostReadsOfLocks = 8;

// A lookup waits this long for the string, and costs a round trip to the store if it does not come in time.
constexpr std::chrono::milliseconds kStringIsReadWithin{5};
constexpr int kMostStringsAtOnce = 8;

std::optional<std::string> read_string(pid_t thread, std::uint64_t address) {
    std::array<char, PATH_MAX> piece{};
    std::string text;
    while (text.size() < PATH_MAX) {
        // There may be nothing after the end of its page.
        const std::size_t size = piece.size() - (address % piece.size());
        const iovec here{piece.data(), size};
        const iovec there{std::bit_cast<void*>(address), size};
        const ssize_t count = process_vm_readv(thread, &here, 1, &there, 1, 0);
        if (count <= 0) {
            return std::nullopt;
        }
        const auto* const begin = piece.begin();
        const auto* const end = std::find(begin, begin + count, '\0');
        text.append(begin, end);
        if (end != begin + count) {
            return text;
        }
        address += static_cast<std::uint64_t>(count);
    }
    return std::nullopt;
}

struct DescriptorCount {
    int all = 0;
    int writable = 0;
    // Of the writable ones, those that may read as well.
    int reading = 0;
    // Of the writable ones, those that an exec leaves open.
    int lasting = 0;
};

// Counts the descriptors of one task; empty if /proc cannot tell. `task_path`: /proc/PID or /proc/PID/task/TID.
std::optional<DescriptorCount> count_descriptors(const std::string& task_path, pid_t process, std::uint64_t inode,
                                                 const std::optional<MountIdentity>& mount) {
    const Directory directory = open_directory(task_path + "/fdinfo");
    if (!directory) {
        return std::nullopt;
    }
    DescriptorCount count;
    while (const auto number = next_number(directory)) {
        const auto text = read_text_file(dirfd(directory.get()), format("{}", *number).c_str());
        if (!text) {
            // Closed since we saw its name.
            continue;
        }
        ++count.all;
        const auto descriptor = parse_descriptor_info(*text);
        if (!descriptor) {
            return std::nullopt;
        }
        if (descriptor->writable && descriptor->inode == inode && is_on_mount(process, *descriptor, mount)) {
            ++count.writable;
            count.reading += descriptor->access == O_RDWR ? 1 : 0;
            count.lasting += descriptor->closed_by_exec ? 0 : 1;
        }
    }
    return count;
}

std::optional<DescriptorCount> count_of_process(pid_t process, std::uint64_t inode,
                                                const std::optional<MountIdentity>& mount) {
    const std::string path = format("/proc/{}", process);
    const auto leader = count_descriptors(path, process, inode, mount);
    if (!leader || leader->all > 0) {
        return leader;
    }
    // A main thread that has ended while others go on shows no descriptors; theirs are the process's.
    const Directory threads = open_directory(path + "/task");
    while (const auto thread = threads ? next_number(threads) : std::nullopt) {
        const auto count = count_descriptors(format("{}/task/{}", path, *thread), process, inode, mount);
        if (count && count->all > 0) {
            return count;
        }
    }
    return DescriptorCount{};
}

// True if a fatal signal was sent, but the main thread still dumps core, which takes minutes if there is much memory,
// or waits in a system call that no signal ends. Linux 5.17 and later show the signal in `exit_code` from then on, and
// that which has stopped a process while it is stopped; earlier ones show a SIGKILL that is pending, and the dump.
bool is_about_to_exit(pid_t process, const TaskStat& leader) {
    const auto status = status_of(process);
    const bool has_fatal_code = (leader.exit_code & 0x7F) != 0 && !leader.is_stopped;
    return has_fatal_code || (status && (status->is_dumping_core || status->process_sigkill_pending));
}

// The children of all threads of the process: a child is listed with the one that forked it.
std::vector<pid_t> children_of(pid_t process) {
    std::vector<pid_t> children;
    const Directory threads = open_directory(format("/proc/{}/task", process));
    while (const auto thread = threads ? next_number(threads) : std::nullopt) {
        const auto text = read_text_file(dirfd(threads.get()), format("{}/children", *thread).c_str());
        const std::vector<pid_t> more = text ? parse_children(*text) : std::vector<pid_t>();
        children.insert(children.end(), more.begin(), more.end());
    }
    return children;
}

}  // namespace

Status ProcInspector::set_mount_point(const std::string& directory) {
    const auto mountinfo = read_text_file(AT_FDCWD, "/proc/self/mountinfo");
    auto found = mountinfo ? find_mount_on(*mountinfo, directory) : std::nullopt;
    if (!found) {
        return failure(ENOENT, format("nothing is mounted on {}", escaped(directory)));
    }
    const MutexLock lock(mutex_);
    mount_ = std::move(found);
    return {};
}

std::optional<pid_t> ProcInspector::thread_group(pid_t thread) const {
    const auto status = thread > 0 ? status_of(thread) : std::nullopt;
    return status ? std::optional(status->thread_group) : std::nullopt;
}

std::optional<int> ProcInspector::writable_descriptors(pid_t process, std::uint64_t inode, int access) const {
    const auto count = process > 0 ? count_of_process(process, inode, mount()) : std::nullopt;
    if (!count) {
        return std::nullopt;
    }
    return access == kAnyAccess ? count->writable
           : access == O_RDWR   ? count->reading
                                : count->writable - count->reading;
}

bool ProcInspector::written_by_others(std::uint64_t inode, pid_t except) const {
    const Directory processes = open_directory("/proc");
    while (const auto process = processes ? next_number(processes) : std::nullopt) {
        if (*process != except && writable_descriptors(*process, inode, kAnyAccess).value_or(0) > 0) {
            return true;
        }
    }
    return false;
}

bool ProcInspector::handed_down(std::uint64_t inode, pid_t process) const {
    constexpr std::size_t kMostDescendants = 4096;
    const auto our_mount = mount();
    std::vector<pid_t> descendants = children_of(process);
    for (std::size_t next = 0; next < descendants.size() && next < kMostDescendants; ++next) {
        const auto count = count_of_process(descendants[next], inode, our_mount);
        if (count && count->lasting > 0) {
            return true;
        }
        const std::vector<pid_t> more = children_of(descendants[next]);
        descendants.insert(descendants.end(), more.begin(), more.end());
    }
    return false;
}

ExitState ProcInspector::exit_state(pid_t thread) const {
    const auto stat = thread > 0 ? stat_of(thread) : std::nullopt;
    if (!stat) {
        return ExitState::kUnknown;
    }
    if (!stat->exiting) {
        return ExitState::kRunning;
    }
    // wait(2): the low seven bits are the signal.
    if ((stat->exit_code & 0x7F) != 0) {
        return ExitState::kKilledBySignal;
    }
    return open_directory(format("/proc/{}/fdinfo", thread)) ? ExitState::kExiting : ExitState::kUnknown;
}

bool ProcInspector::is_being_killed(pid_t process) const {
    const auto leader = process > 0 ? stat_of(process) : std::nullopt;
    if (!leader) {
        return false;
    }
    if (!leader->exiting) {
        return is_about_to_exit(process, *leader);
    }
    if ((leader->exit_code & 0x7F) == 0) {
        return false;
    }
    if (!leader->has_ended) {
        return true;
    }
    // The last of its threads closes what they share.
    const Directory threads = open_directory(format("/proc/{}/task", process));
    while (const auto thread = threads ? next_number(threads) : std::nullopt) {
        const auto stat = stat_of(*thread);
        if (stat && !stat->has_ended) {
            return true;
        }
    }
    return false;
}

// The kernel tells the locks of the node a page at a time, by their number in the list: once one is gone that it has
// told, the next page leaves out another.
bool ProcInspector::is_locked(std::uint64_t inode, std::optional<pid_t> process) const {
    const auto our_mount = mount();
    std::string earlier;
    for (int reads = 0; our_mount && reads < kMostReadsOfLocks; ++reads) {
        auto locks = read_text_file(AT_FDCWD, "/proc/locks");
        if (!locks || ckptfs::is_locked(*locks, our_mount->device, inode, process)) {
            return locks.has_value();
        }
        if (locks->size() <= kLocksToldAtOnce || *locks == earlier) {
            return false;
        }
        earlier = std::move(*locks);
    }
    return false;
}

bool ProcInspector::makes_anew(pid_t thread, std::string_view name) const {
    const auto text = thread > 0 ? read_of_task(thread, "syscall") : std::nullopt;
    const auto call = text ? parse_open_call(*text) : std::nullopt;
    constexpr int kAnew = O_CREAT | O_TRUNC;
    if (!call || (call->flags & (kAnew | O_EXCL)) != kAnew) {
        return false;
    }
    const auto path = string_of(thread, call->path);
    return path && only_ends_in(*path, name);
}

// Reading the string takes the mmap lock of the process, which another thread of it may hold while it waits for us: in
// munmap(2) of a file of this mount, say.
std::optional<std::string> ProcInspector::string_of(pid_t thread, std::uint64_t address) const {
    const std::shared_ptr<void> reading(nullptr, [count = reading_](void*) { --*count; });
    if (++*reading_ > kMostStringsAtOnce) {
        return std::nullopt;
    }
    const auto answer = std::make_shared<std::promise<std::optional<std::string>>>();
    readers_->post([thread, address, answer, reading] { answer->set_value(read_string(thread, address)); });
    std::future<std::optional<std::string>> text = answer->get_future();
    return text.wait_for(kStringIsReadWithin) == std::future_status::ready ? text.get() : std::nullopt;
}

bool ProcInspector::is_in_background(pid_t thread) const {
    return thread > 0 && has_idle_io_priority(thread);
}

bool ProcInspector::is_dying(pid_t thread) const {
    if (thread <= 0) {
        return false;
    }
    const auto status = status_of(thread);
    if (status && status->sigkill_pending) {
        return true;
    }
    const auto stat = stat_of(thread);
    // Gone means dead, unless we could not see it in the first place.
    return stat && stat->exiting;
}

std::optional<MountIdentity> ProcInspector::mount() const {
    const MutexLock lock(mutex_);
    return mount_;
}

ExitCodeSight exit_code_sight() {
    const pid_t child = fork();
    if (child < 0) {
        return ExitCodeSight::kNone;
    }
    if (child == 0) {
        kill(getpid(), SIGKILL);
        _exit(0);
    }
    // Left unreaped while we look.
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    const bool seen = ProcInspector().exit_state(child) == ExitState::kKilledBySignal;
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (!seen) {
        return ExitCodeSight::kNone;
    }
    // The child has our user and our capabilities; writers may have others.
    const auto own_status = read_text_file(AT_FDCWD, "/proc/self/status");
    return own_status && may_trace_everyone(*own_status) ? ExitCodeSight::kEveryUser : ExitCodeSight::kOwnUser;
}

}  // namespace ckptfs
