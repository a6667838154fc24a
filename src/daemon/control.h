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

// Where the sockets of this user's daemons are, or are to be.
//
// Without a runtime directory it is below `temporary`, where every user can make directories: one with the user's
// name that only this user can enter; none where there is none yet, because its name is not known before it is made.
[[nodiscard]] std::string control_directory(uid_t user, uid_t self, const Environment& environment,
                                            const std::string& temporary = "/tmp");
// Of this user, made with mode 0700 where it is missing.
Result<std::string> make_control_directory(const Environment& environment, const std::string& temporary = "/tmp");
[[nodiscard]] std::string control_path(const std::string& directory, const std::string& mount_point);
// Whether a socket of this path is that of a daemon which was mounted where the one of `control_path` is or was.
[[nodiscard]] bool is_of_same_place(const std::string& path, const std::string& control_path);

[[nodiscard]] std::string progress_line(const DrainProgress& progress);
[[nodiscard]] std::optional<DrainProgress> parse_progress(std::string_view line);
// For people.
[[nodiscard]] std::string progress_text(const DrainProgress& progress);

class ControlServer {
public:
    // Makes the directory (0700) if it is missing. A daemon that has lost its mount there and only finishes its uploads
    // keeps its socket, under another name.
    static Result<ControlServer> create(const std::string& directory, const std::string& mount_point);
    ControlServer(ControlServer&& other) noexcept = default;
    ControlServer& operator=(ControlServer&& other) noexcept = default;
    // Removes its socket.
    ~ControlServer();

    // Readable when a client has connected.
    [[nodiscard]] int descriptor() const { return listener_.get(); }
    // Takes one connection. True if it asks to unmount; it then gets what tell() sends. A client that asks for the
    // status gets what `status` returns; others are refused.
    bool accept(const std::function<std::string()>& status);
    // Clients that do not read are dropped.
    void tell(const std::string& line);
    // Of what was not saved: those that ask to unmount later are told it as well.
    void tell_outcome(const std::string& line);
    // Takes the connections that still wait, and tells all clients that it is done. No client can connect after that.
    void finish();

private:
    ControlServer(FileDescriptor listener, std::string path, ino_t inode)
        : listener_(std::move(listener)), path_(std::move(path)), inode_(inode) {}

    void remove_socket() const;

    FileDescriptor listener_;
    std::string path_;
    // By the time we end, the path may be that of a successor, which has renamed ours.
    ino_t inode_;
    std::vector<FileDescriptor> clients_;
    // Lines, with their ends.
    std::string outcome_;
};

// Sends the request and hands every line of the answer to `on_line`; the PID of the daemon, 0 where it is in a PID
// namespace that is not seen here. ENOENT or ECONNREFUSED where no daemon listens, ETIMEDOUT where it says nothing for
// so long, EPERM where another user than `owner` listens, or made the directory of the socket.
Result<pid_t> call_daemon(const std::string& path, uid_t owner, const std::string& request,
                          std::chrono::seconds patience, const std::function<void(std::string_view)>& on_line);

}  // namespace ckptfs
