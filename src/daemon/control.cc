// SPDX-License-Identifier: Apache-2.0
#include "daemon/control.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/numbers.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr std::string_view kUnmount = "unmount\n";
constexpr std::string_view kStatus = "status\n";
constexpr int kPatienceMilliseconds = 1000;
constexpr int kBacklog = 8;
constexpr std::string_view kEnding = ".sock";
// Far above the size of a status.
constexpr std::size_t kLongestLine = std::size_t{1} << 20;

// FNV-1a with 64 bits: a path may be longer than a socket's name.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const char letter : text) {
        hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
    }
    return hash;
}

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return failure(ENAMETOOLONG, format("the path of the control socket is too long: {}", escaped(path)));
    }
    path.copy(address.sun_path, path.size());
    return address;
}

Failure says_nothing(const std::string& path, std::chrono::seconds patience) {
    return failure(ETIMEDOUT, format("the daemon at {} has said nothing for {} s; its log may tell why", escaped(path),
                                     patience.count()));
}

Failure system_failure(std::string_view what, const std::string& path) {
    return failure(errno, format("{} {}: {}", what, escaped(path), std::strerror(errno)));
}

// Credentials of the other side: of the client on an accepted connection, of the listener on one that was made.
std::optional<ucred> peer_of(int connection) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? std::optional(peer) : std::nullopt;
}

bool may_command(int client) {
    const std::optional<ucred> peer = peer_of(client);
    return peer && (peer->uid == 0 || peer->uid == geteuid());
}

std::optional<std::string> runtime_directory(uid_t user, uid_t self, const Environment& environment) {
    if (user == 0) {
        return "/run/ckptfs";
    }
    if (const auto runtime = user == self ? environment("XDG_RUNTIME_DIR") : std::nullopt) {
        return *runtime + "/ckptfs";
    }
    const std::string runtime = format("/run/user/{}", user);
    return access(runtime.c_str(), X_OK) == 0 ? std::optional(runtime + "/ckptfs") : std::nullopt;
}

// A template for mkdtemp(3): other users could create a predictable name first.
std::string template_of(uid_t user, const std::string& temporary) {
    return format("{}/ckptfs-{}-XXXXXX", temporary, user);
}

// Other users can make directories of this name, but none that `user` owns. Of several the first by name, so that all
// processes agree.
std::optional<std::string> private_directory_of(uid_t user, const std::string& temporary) {
    const std::string name = format("ckptfs-{}-", user);
    std::optional<std::string> found;
    std::error_code problem;
    for (std::filesystem::directory_iterator entry(temporary, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string path = entry->path().string();
        struct stat status {};
        if (entry->path().filename().string().starts_with(name) && (!found || path < *found) &&
            lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == user &&
            (status.st_mode & 0077U) == 0) {
            found = path;
        }
    }
    return found;
}

Status check_place(const std::string& path, uid_t owner) {
    const std::string directory = path.substr(0, path.rfind('/'));
    struct stat status {};
    if (lstat(directory.c_str(), &status) != 0) {
        return system_failure("cannot look at", directory);
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != owner || (status.st_mode & 0022U) != 0) {
        return failure(EPERM, format("{} must be a directory of user {} to which no other user can write",
                                     escaped(directory), owner));
    }
    return {};
}

std::string stem_of(const std::string& control_path) {
    return control_path.substr(0, control_path.size() - kEnding.size());
}

std::string renamed_path(const std::string& control_path, ino_t inode) {
    return format("{}-{}{}", stem_of(control_path), inode, kEnding);
}

std::optional<ino_t> inode_of(const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 ? std::optional(status.st_ino) : std::nullopt;
}

bool is_listened_to(const std::string& path) {
    const auto address = address_of(path);
    const FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return address && client &&
           (connect(client.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 ||
            errno == EAGAIN);
}

// Removes the sockets of daemons that have died, and renames that of a running predecessor, which must stay reachable.
void make_way(const std::string& directory, const std::string& path) {
    std::error_code problem;
    std::vector<std::string> found;
    for (std::filesystem::directory_iterator entry(directory, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        if (is_of_same_place(entry->path().string(), path)) {
            found.push_back(entry->path().string());
        }
    }
    for (const std::string& each : found) {
        const std::optional<ino_t> inode = inode_of(each);
        if (!is_listened_to(each)) {
            unlink(each.c_str());
        } else if (each == path && inode) {
            rename(path.c_str(), renamed_path(path, *inode).c_str());
        }
    }
}

bool readable(int fd, int milliseconds) {
    pollfd waiting{fd, POLLIN, 0};
    return poll(&waiting, 1, milliseconds) == 1;
}

// False for a client that is gone, or has not read all of it in time.
bool send_all(int client, std::string_view text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMilliseconds);
    while (!text.empty()) {
        const ssize_t sent = send(client, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent > 0) {
            text.remove_prefix(static_cast<std::size_t>(sent));
            continue;
        }
        const bool may_wait = errno == EINTR || errno == EAGAIN;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
        if (!may_wait || left <= 0) {
            return false;
        }
        pollfd waiting{client, POLLOUT, 0};
        poll(&waiting, 1, static_cast<int>(left));
    }
    return true;
}

}  // namespace

std::string control_directory(uid_t user, uid_t self, const Environment& environment, const std::string& temporary) {
    const auto runtime = runtime_directory(user, self, environment);
    // The template leads nowhere, or to a directory that check_place() refuses.
    return runtime ? *runtime : private_directory_of(user, temporary).value_or(template_of(user, temporary));
}

Result<std::string> make_control_directory(const Environment& environment, const std::string& temporary) {
    const uid_t self = getuid();
    if (auto runtime = runtime_directory(self, self, environment)) {
        const Status made = make_private_directory(*runtime);
        return made ? Result<std::string>(std::move(*runtime)) : failure(made.error());
    }
    if (auto there = private_directory_of(self, temporary)) {
        return std::move(*there);
    }
    std::string path = template_of(self, temporary);
    if (mkdtemp(path.data()) == nullptr) {
        return system_failure("cannot make", path);
    }
    return path;
}

std::string control_path(const std::string& directory, const std::string& mount_point) {
    return format("{}/{:016x}{}", directory, hash_of(mount_point), kEnding);
}

bool is_of_same_place(const std::string& path, const std::string& control_path) {
    return path == control_path || (path.starts_with(stem_of(control_path) + "-") && path.ends_with(kEnding));
}

std::string progress_line(const DrainProgress& progress) {
    return format("progress {} {} {}", progress.files, progress.bytes_acknowledged, progress.bytes_in_store);
}

std::optional<DrainProgress> parse_progress(std::string_view line) {
    constexpr std::string_view kWord = "progress";
    if (!line.starts_with(kWord)) {
        return std::nullopt;
    }
    line.remove_prefix(kWord.size());
    std::array<std::uint64_t, 3> numbers{};
    for (std::uint64_t& number : numbers) {
        if (!line.starts_with(' ')) {
            return std::nullopt;
        }
        line.remove_prefix(1);
        const auto next = take_number<std::uint64_t>(line);
        if (!next) {
            return std::nullopt;
        }
        number = *next;
    }
    return DrainProgress{numbers[0], numbers[1], numbers[2]};
}

std::string progress_text(const DrainProgress& progress) {
    return format("saving {}: {} of {} MiB in the store", counted(progress.files, "file"),
                  mebibytes(progress.bytes_in_store), mebibytes(progress.bytes_acknowledged));
}

Result<ControlServer> ControlServer::create(const std::string& directory, const std::string& mount_point) {
    if (auto made = make_private_directory(directory); !made) {
        return failure(made.error());
    }
    const std::string path = control_path(directory, mount_point);
    const auto address = address_of(path);
    if (!address) {
        return failure(address.error());
    }
    FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    make_way(directory, path);
    if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
        return system_failure("cannot make the control socket", path);
    }
    if (chmod(path.c_str(), 0600) != 0 || listen(listener.get(), kBacklog) != 0) {
        return system_failure("cannot listen at the control socket", path);
    }
    const std::optional<ino_t> inode = inode_of(path);
    if (!inode) {
        return system_failure("cannot find the control socket", path);
    }
    return ControlServer(std::move(listener), path, *inode);
}

ControlServer::~ControlServer() {
    if (listener_) {
        remove_socket();
    }
}

// As long as the listener is open, no other socket gets its inode.
void ControlServer::remove_socket() const {
    for (const std::string& path : {path_, renamed_path(path_, inode_)}) {
        if (inode_of(path) == inode_) {
            unlink(path.c_str());
        }
    }
}

bool ControlServer::accept(const std::function<std::string()>& status) {
    FileDescriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client || !may_command(client.get())) {
        return false;
    }
    std::array<char, 64> request{};
    const ssize_t size =
        readable(client.get(), kPatienceMilliseconds) ? recv(client.get(), request.data(), request.size(), 0) : -1;
    const std::string_view asked(request.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
    if (asked == kStatus) {
        // A client that does not read gets only the beginning.
        static_cast<void>(send_all(client.get(), status()));
    }
    if (asked != kUnmount || !send_all(client.get(), outcome_)) {
        return false;
    }
    clients_.push_back(std::move(client));
    return true;
}

void ControlServer::tell(const std::string& line) {
    const std::string message = line + "\n";
    std::erase_if(clients_, [&](const FileDescriptor& client) { return !send_all(client.get(), message); });
}

void ControlServer::tell_outcome(const std::string& line) {
    tell(line);
    outcome_ += line + "\n";
}

void ControlServer::finish() {
    remove_socket();
    // One more than the backlog can wait.
    for (int i = 0; i <= kBacklog && readable(listener_.get(), 0); ++i) {
        accept([] { return std::string(); });
    }
    tell("done");
}

Result<pid_t> call_daemon(const std::string& path, uid_t owner, const std::string& request,
                          std::chrono::seconds patience, const std::function<void(std::string_view)>& on_line) {
    const auto address = address_of(path);
    if (!address) {
        return failure(address.error());
    }
    if (const Status place = check_place(path, owner); !place) {
        return failure(place.error());
    }
    const FileDescriptor daemon(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!daemon) {
        return system_failure("cannot make a socket for", path);
    }
    // The kernel accepts connections for a daemon that hangs, and makes callers wait once the backlog is full.
    const timeval limit{static_cast<time_t>(patience.count()), 0};
    setsockopt(daemon.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(daemon.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(daemon.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
        return errno == EAGAIN ? says_nothing(path, patience) : system_failure("cannot reach the daemon at", path);
    }
    const std::optional<ucred> listener = peer_of(daemon.get());
    if (!listener || listener->uid != owner) {
        return failure(EPERM, format("{} is served by a user other than {}", escaped(path), owner));
    }
    const std::string message = request + "\n";
    if (send(daemon.get(), message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size())) {
        return system_failure("cannot talk to the daemon at", path);
    }
    std::string pending;
    std::array<char, 4096> chunk{};
    for (;;) {
        const ssize_t size = recv(daemon.get(), chunk.data(), chunk.size(), 0);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0 && errno == EAGAIN) {
            return says_nothing(path, patience);
        }
        if (pending.size() > kLongestLine) {
            return failure(EPROTO, format("the daemon at {} sent an unterminated line", escaped(path)));
        }
        if (size <= 0) {
            return listener->pid;
        }
        pending.append(chunk.data(), static_cast<std::size_t>(size));
        for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
            on_line(std::string_view(pending).substr(0, end));
            pending.erase(0, end + 1);
        }
    }
}

}  // namespace ckptfs
