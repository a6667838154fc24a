// SPDX-License-Identifier: Apache-2.0
#include "fuse/connection_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <string>

#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The kernel's signal when the thread that forked is gone.
constexpr int kDaemonEnds = SIGUSR1;
// Threads that can end do so at once, except for the time that giving memory back takes: some GiB a second.
constexpr int kEndMilliseconds = 1000;

struct Watched {
    int mount_id = 0;
    unsigned minor = 0;
    std::array<char, PATH_MAX> mount_point{};
};

// fuse.rst: "Writing anything into this file will abort the filesystem connection". The control file system may not be
// mounted.
bool abort_by_control_file(const Watched& watched) {
    const std::string path = format("/sys/fs/fuse/connections/{}/abort", watched.minor);
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    return file && write(file.get(), "1", 1) == 1;
}

bool is_on_mount(const FileDescriptor& file, int mount_id) {
    const auto described = read_text_file(AT_FDCWD, format("/proc/self/fdinfo/{}", file.get()).c_str());
    return described && described->find(format("mnt_id:\t{}\n", mount_id)) != std::string::npos;
}

// umount2(2), MNT_FORCE: "Ask the filesystem to abort pending requests before attempting the unmount". The mount must
// stay, and fail with ENOTCONN: below it there is a directory of the local disk. It stays because we have it open.
// O_PATH asks nothing of the daemon.
bool abort_by_unmounting(const Watched& watched) {
    const FileDescriptor root(open(watched.mount_point.data(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // Another one may be mounted there by now.
    if (!root || !is_on_mount(root, watched.mount_id)) {
        return false;
    }
    const std::string itself = format("/proc/self/fd/{}", root.get());
    return umount2(itself.c_str(), MNT_FORCE) == 0 || errno == EBUSY;
}

bool has_ended(int daemon, int milliseconds) {
    pollfd end{daemon, POLLIN, 0};
    return poll(&end, 1, milliseconds) == 1;
}

void end_connection(const Watched& watched) {
    const std::string where = escaped(watched.mount_point.data());
    if (abort_by_control_file(watched) || abort_by_unmounting(watched)) {
        log_warning(format("the daemon of {} was killed but could not exit: its connection was aborted", where));
    } else {
        log_error(
            format("the daemon of {} was killed but cannot exit, and programs that use the mount hang; as root, run: "
                   "umount -f {}",
                   where, where));
    }
}

void not_guarded(const std::string& why) {
    log_warning(format("if this process is killed, programs that use the mount may hang: {}", why));
}

[[noreturn]] void guard(int daemon, pid_t parent, const sigset_t& ends) {
    close_all_but(daemon, STDERR_FILENO + 1);
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    // A signal to the daemon's process group must not end the guard.
    setsid();
    prctl(PR_SET_NAME, "ckptfs-guard");
    prctl(PR_SET_PDEATHSIG, kDaemonEnds);
    Watched watched;
    // Nothing comes if the daemon ends before it has mounted.
    const bool is_mounted = recv(daemon, &watched, sizeof watched, MSG_WAITALL) == sizeof watched;
    while (is_mounted && getppid() == parent && sigwaitinfo(&ends, nullptr) != kDaemonEnds) {
    }
    if (is_mounted && !has_ended(daemon, kEndMilliseconds)) {
        end_connection(watched);
    }
    _exit(0);
}

}  // namespace

void ConnectionGuard::start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        not_guarded(format("cannot make a socket pair: {}", std::strerror(errno)));
        return;
    }
    FileDescriptor ours(ends[0]);
    const FileDescriptor its(ends[1]);
    // Signals from a terminal or a service manager are for the daemon, not for the guard; they are blocked before it
    // exists.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t parent = getpid();
    const pid_t child = fork();
    const int problem = errno;
    if (child == 0) {
        sigset_t awaited;
        sigemptyset(&awaited);
        sigaddset(&awaited, kDaemonEnds);
        guard(its.get(), parent, awaited);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (child < 0) {
        not_guarded(format("cannot start a process: {}", std::strerror(problem)));
        return;
    }
    daemon_ = std::move(ours);
}

void ConnectionGuard::watch(const MountEntry& mount) {
    Watched watched;
    if (!daemon_) {
        return;
    }
    if (mount.mount_point.size() >= watched.mount_point.size()) {
        not_guarded("the mount point's path is too long");
        return;
    }
    watched.mount_id = mount.mount_id;
    watched.minor = mount.minor;
    mount.mount_point.copy(watched.mount_point.data(), mount.mount_point.size());
    if (send(daemon_.get(), &watched, sizeof watched, MSG_NOSIGNAL) != sizeof watched) {
        not_guarded(format("its process has ended: {}", std::strerror(errno)));
    }
}

void ConnectionGuard::release() {
    if (daemon_) {
        shutdown(daemon_.get(), SHUT_RDWR);
    }
}

}  // namespace ckptfs
