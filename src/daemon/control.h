// SPDX-License-Identifier: Apache-2.0
// How `ckptfs unmount` and `ckptfs status` talk to the daemon: a Unix socket named by the mount point, in a directory
// that only its user can enter; lines of text.
//
//   client: unmount
//   daemon: progress FILES BYTES_ACKNOWLEDGED BYTES_IN_STORE      now and then
//           lost KEY                                             for every file that is not saved
//           undone TEXT                                          for what else the bucket does not say
//           done                                                 unmounted
//
//   client: status
//   daemon: one line of JSON (status_json.h)
//
// Threads: a ControlServer is used by one thread; call_daemon() blocks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/file_descriptor.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct DrainProgress {
    std::uint64_t files = 0;
    std::uint64_t bytes_acknowledged = 0;
    std::uint64_t bytes_in_store = 0;

    friend bool operator==(const DrainProgress&, const DrainProgress&) = default;
};

// The directory of the control sockets of `user`'s daemons. `self`: the user of this process.
//
// Without a runtime directory it lies below `temporary`, where every user can make directories: one named after `user`
// that only this user can enter. If there is none yet, the path returned leads nowhere, because mkdtemp(3) chooses the
// name.
[[nodiscard]] std::string control_directory(uid_t user, uid_t self, const Environment& environment,
                                            const std::string& temporary = "/tmp");
// The control directory of this user, created with mode 0700 if it is missing.
Result<std::string> make_control_directory(const Environment& environment, const std::string& temporary = "/tmp");
[[nodiscard]] std::string control_path(const std::string& directory, const std::string& mount_point);
// Whether `path` is the socket of a daemon at the mount point of `control_path`: that path, or the name that a socket
// gets when a successor takes its path.
[[nodiscard]] bool is_of_same_place(const std::string& path, const std::string& control_path);

[[nodiscard]] std::string progress_line(const DrainProgress& progress);
[[nodiscard]] std::optional<DrainProgress> parse_progress(std::string_view line);
// The progress as text for a person.
[[nodiscard]] std::string progress_text(const DrainProgress& progress);

class ControlServer {
public:
    // Makes the directory (0700) if it is missing. A daemon that has lost its mount there and only finishes its uploads
    // keeps its socket, which is renamed.
    static Result<ControlServer> create(const std::string& directory, const std::string& mount_point);
    ControlServer(ControlServer&& other) noexcept = default;
    ControlServer& operator=(ControlServer&& other) noexcept = default;
    // Removes its socket.
    ~ControlServer();

    // Readable when a client has connected.
    [[nodiscard]] int descriptor() const { return listener_.get(); }
    // Accepts one connection. True if the client asks to unmount; it then gets what tell() sends. A client that asks
    // for the status gets what `status` returns; others are refused.
    bool accept(const std::function<std::string()>& status);
    // Sends the line to the clients that have asked to unmount. Clients that do not read it in time are dropped.
    void tell(const std::string& line);
    // As tell(), for a line about what was not saved: clients that ask to unmount later get it as well.
    void tell_outcome(const std::string& line);
    // Removes the socket, accepts the connections that still wait, and sends `done` to all clients. No client can
    // connect after that.
    void finish();

private:
    ControlServer(FileDescriptor listener, std::string path, ino_t inode)
        : listener_(std::move(listener)), path_(std::move(path)), inode_(inode) {}

    void remove_socket() const;

    FileDescriptor listener_;
    std::string path_;
    // The inode of our socket. By the time we end, path_ may be the socket of a successor, which has renamed ours.
    ino_t inode_;
    std::vector<FileDescriptor> clients_;
    // The lines of tell_outcome(), each with its line feed.
    std::string outcome_;
};

// Sends the request, passes every line of the reply to `on_line`, and returns the daemon's PID: 0 if that is in a PID
// namespace that is not visible here. ENOENT or ECONNREFUSED if no daemon listens, ETIMEDOUT if it sends nothing for
// `patience`, EPERM if a user other than `owner` listens, or owns the directory of the socket or can write to it.
Result<pid_t> call_daemon(const std::string& path, uid_t owner, const std::string& request,
                          std::chrono::seconds patience, const std::function<void(std::string_view)>& on_line);

}  // namespace ckptfs
