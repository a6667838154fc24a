// SPDX-License-Identifier: Apache-2.0
#include "daemon/takeover.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "base/private_directory.h"
#include "base/text.h"
#include "ckptfs/clock.h"
#include "ckptfs/log.h"
#include "daemon/control.h"

namespace ckptfs {
namespace {

// For a dead connection the kernel replies at once.
constexpr int kAnswerMilliseconds = 3000;
// The longest wait for another process that mounts at the same place: its checks before that take no longer.
constexpr Milliseconds kWaitForTurn{30'000};
constexpr Milliseconds kTryAgain{20};
// Dead mounts at one place: one per daemon that died without its mount being detached; more were made by other
// programs.
constexpr int kMostLayers = 8;

// Requests that waited for the daemon when it died get ECONNABORTED.
bool is_told_by_a_dead_mount(int error) {
    return error == ENOTCONN || error == ECONNABORTED;
}

// statfs(2), because attributes may be cached. In a process of its own, because a daemon that hangs makes it hang.
bool answers_not_connected(const std::string& mount_point) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    const FileDescriptor reader(ends[0]);
    FileDescriptor writer(ends[1]);
    const pid_t child = fork();
    if (child == 0) {
        // This child may hang for as long as the daemon does: no other process may have to wait for what it holds open.
        close_all_but(writer.get(), 0);
        struct statfs status {};
        const char dead = statfs(mount_point.c_str(), &status) != 0 && is_told_by_a_dead_mount(errno) ? 1 : 0;
        _exit(write(writer.get(), &dead, 1) == 1 ? 0 : 1);
    }
    writer.reset();
    char dead = 0;
    pollfd answer{reader.get(), POLLIN, 0};
    const bool answered = child > 0 && poll(&answer, 1, kAnswerMilliseconds) == 1 && read(reader.get(), &dead, 1) == 1;
    if (child > 0) {
        kill(child, SIGKILL);
        // A child that hangs in the kernel ends when the mount's daemon answers.
        waitpid(child, nullptr, answered ? 0 : WNOHANG);
    }
    return answered && dead == 1;
}

// MNT_DETACH: processes that have files open in the mount, or work in it, must not keep it in the tree.
Status detach(const std::string& mount_point) {
    if (umount2(mount_point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
        return {};
    }
    if (errno != EPERM) {
        return failure(errno,
                       format("cannot detach the dead mount at {}: {}", escaped(mount_point), std::strerror(errno)));
    }
    // Without root, fusermount3 does it.
    std::string words[] = {"fusermount3", "-u", "-z", "--", mount_point};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    pid_t child = 0;
    int status = 0;
    if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        return failure(EPERM, format("cannot detach the dead mount at {}; as root, run: umount {}",
                                     escaped(mount_point), escaped(mount_point)));
    }
    return {};
}

// False if the lock's file was removed by its holder after it was opened here.
bool leads_to(const std::string& path, const FileDescriptor& file) {
    struct stat opened {};
    struct stat there {};
    return fstat(file.get(), &opened) == 0 && lstat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
           opened.st_dev == there.st_dev;
}

Result<PlaceLock> lock_place(const std::string& directory, const std::string& mount_point) {
    if (auto made = make_private_directory(directory); !made) {
        return failure(made.error());
    }
    std::string path = control_path(directory, mount_point) + ".lock";
    const auto deadline = std::chrono::steady_clock::now() + kWaitForTurn;
    FileDescriptor file;
    for (;;) {
        if (!file) {
            file = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        }
        if (!file) {
            return failure(errno, format("cannot make the lock {}: {}", escaped(path), std::strerror(errno)));
        }
        const bool locked = flock(file.get(), LOCK_EX | LOCK_NB) == 0;
        if (locked && leads_to(path, file)) {
            return PlaceLock(std::move(file), std::move(path));
        }
        if ((!locked && errno != EWOULDBLOCK) || std::chrono::steady_clock::now() > deadline) {
            return failure(EBUSY, format("another ckptfs has been mounting at {} for {} s", escaped(mount_point),
                                         kWaitForTurn.count() / 1000));
        }
        if (locked) {
            file.reset();
        } else {
            std::this_thread::sleep_for(kTryAgain);
        }
    }
}

Failure not_ours(const MountEntry& entry, const std::string& source) {
    const std::string where = escaped(entry.mount_point);
    return failure(EBUSY, format("the program behind the mount of {} at {} has ended; it is not this user's mount of "
                                 "{} and is left as it is; remove it with umount {}",
                                 escaped(entry.source), where, escaped(source), where));
}

}  // namespace

PlaceLock::~PlaceLock() {
    if (file_) {
        unlink(path_.c_str());
    }
}

TakeoverSystem takeover_system(std::function<Result<std::string>()> lock_directory) {
    return {read_mount_table, answers_not_connected, detach,
            [directory = std::move(lock_directory)](const std::string& mount_point) -> Result<PlaceLock> {
                const Result<std::string> made = directory();
                return made ? lock_place(*made, mount_point) : failure(made.error());
            }};
}

Result<bool> is_ours_to_take_back(const std::string& mount_point, const std::string& source, uid_t self,
                                  const TakeoverSystem& system) {
    const auto table = system.mount_table();
    if (!table) {
        return failure(table.error());
    }
    const auto entry = mount_at(*table, mount_point);
    if (!entry || entry->type != kFileSystemType || !system.is_dead(mount_point)) {
        return false;
    }
    if (entry->source != source || entry->owner() != self) {
        return not_ours(*entry, source);
    }
    return true;
}

Result<bool> take_back(const std::string& mount_point, const std::string& source, uid_t self,
                       const TakeoverSystem& system) {
    bool taken = false;
    for (int layer = 0; layer < kMostLayers; ++layer) {
        const auto ours = is_ours_to_take_back(mount_point, source, self, system);
        if (!ours) {
            return failure(ours.error());
        }
        if (!*ours) {
            break;
        }
        const auto table = system.mount_table();
        const auto dead = table ? mount_at(*table, mount_point) : std::nullopt;
        // The mounts inside were unreachable before: no path led through the dead mount.
        if (const std::string inside = dead ? mounts_inside(*table, *dead) : ""; !inside.empty()) {
            log_warning(
                format("detaching the dead mount at {} hides the mounts below it: {}", escaped(mount_point), inside));
        }
        if (auto detached = system.detach(mount_point); !detached) {
            return failure(detached.error());
        }
        taken = true;
    }
    return taken;
}

}  // namespace ckptfs
