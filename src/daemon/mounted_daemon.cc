// SPDX-License-Identifier: Apache-2.0
#include "daemon/mounted_daemon.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/environment.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "daemon/control.h"
#include "daemon/local_checks.h"
#include "daemon/status_json.h"

namespace ckptfs {
namespace {

std::string what_to_do(const MountEntry& mount, int errno_value) {
    switch (errno_value) {
        case EACCES:
        case EPERM:
            return "; a daemon answers only root and the user who mounted it";
        case ECONNREFUSED:
        case ENOENT:
            // The daemon may also run in a container, which has its own sockets.
            return format(
                "; if its program has ended, mount it again (not by mount -a), or remove it with "
                "fusermount3 -u {}",
                escaped(mount.mount_point));
        default:
            return "";
    }
}

Result<MountEntry> shown_at(const std::vector<MountEntry>& table, const std::string& directory) {
    const std::string mount_point = resolved_mount_point(directory);
    auto mounted = mount_at(table, mount_point);
    if (!mounted || mounted->type != kFileSystemType) {
        // The last part may be a symbolic link; no mount of ours is there, so that it can be resolved.
        std::error_code problem;
        const auto resolved = std::filesystem::canonical(mount_point, problem);
        mounted = problem ? std::nullopt : mount_at(table, resolved.string());
    }
    if (!mounted || mounted->type != kFileSystemType) {
        return failure(EINVAL, format("no ckptfs is mounted at {}", escaped(directory)));
    }
    return *mounted;
}

// The last line, which is the status.
Result<std::string> status_at(const std::string& socket, uid_t owner, std::chrono::seconds patience) {
    std::string status;
    const auto asked =
        call_daemon(socket, owner, "status", patience, [&](std::string_view line) { status = std::string(line); });
    return asked ? Result<std::string>(std::move(status)) : failure(asked.error());
}

// Empty where the daemon has lost its mount, is about to end, or of an earlier version.
std::string device_in(const std::string& status) {
    const Result<MountStatus> parsed = parse_status(status);
    return parsed ? parsed->device : "";
}

// Mount namespaces may share the directory of the sockets, and have mounts at the same path: the latest has the socket
// of that name, and the others' were renamed. A daemon that does not tell what it serves is taken for that of the path.
Result<std::string> socket_of(const MountEntry& mount, uid_t owner, std::chrono::seconds patience) {
    const std::string directory = control_directory(owner, getuid(), process_environment());
    std::string first = control_path(directory, mount.mount_point);
    const auto told = status_at(first, owner, patience);
    const std::string served = told ? device_in(*told) : "";
    if (told && (served.empty() || served == device_of(mount))) {
        return first;
    }
    std::error_code problem;
    for (std::filesystem::directory_iterator entry(directory, problem), end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string path = entry->path().string();
        if (path == first || !is_of_same_place(path, first)) {
            continue;
        }
        if (const auto status = status_at(path, owner, patience); status && device_in(*status) == device_of(mount)) {
            return path;
        }
    }
    return told ? failure(ESRCH,
                          "its daemon cannot be reached; the one that answers serves a mount of the same path in "
                          "another mount namespace")
                : failure(told.error());
}

}  // namespace

Result<MountEntry> find_mount(const std::string& directory) {
    const auto table = read_mount_table();
    const auto shown = table ? shown_at(*table, directory) : failure(table.error());
    return shown ? Result<MountEntry>(made_by_daemon(*table, *shown)) : failure(shown.error());
}

Result<MountEntry> find_mount_to_end(const std::string& directory) {
    const auto table = read_mount_table();
    auto shown = table ? shown_at(*table, directory) : failure(table.error());
    if (!shown) {
        return shown;
    }
    if (const MountEntry& made = made_by_daemon(*table, *shown); made.mount_id != shown->mount_id) {
        return failure(
            EINVAL,
            format("{} is a bind mount of {}: remove it with umount {}, or end the daemon with ckptfs "
                   "unmount {}",
                   escaped(directory), escaped(made.mount_point), escaped(directory), escaped(made.mount_point)));
    }
    if (const std::string inside = mounts_inside(*table, *shown); !inside.empty()) {
        return failure(EBUSY, format("{} contains other mounts; unmount them first: {}", escaped(directory), inside));
    }
    return shown;
}

Result<std::vector<MountEntry>> find_mounts() {
    auto table = read_mount_table();
    if (table) {
        const uid_t self = getuid();
        const std::vector<MountEntry> all = *table;
        std::erase_if(*table, [self, &all](const MountEntry& each) {
            return each.type != kFileSystemType || (self != 0 && each.owner() != self) ||
                   made_by_daemon(all, each).mount_id != each.mount_id;
        });
    }
    return table;
}

Result<pid_t> ask_daemon(const MountEntry& mount, const std::string& request, std::chrono::seconds patience,
                         const std::function<void(std::string_view)>& on_line) {
    const uid_t owner = mount.owner().value_or(0);
    const auto socket = socket_of(mount, owner, patience);
    auto asked = socket ? call_daemon(*socket, owner, request, patience, on_line) : failure(socket.error());
    if (!asked) {
        return failure(asked.error().errno_value, format("{}: {}{}", escaped(mount.mount_point), asked.error().message,
                                                         what_to_do(mount, asked.error().errno_value)));
    }
    return asked;
}

Result<pid_t> find_trusted_daemon(const MountEntry& mount, std::chrono::seconds patience) {
    const uid_t owner = mount.owner().value_or(0);
    if (owner != 0 && owner != geteuid()) {
        return failure(EPERM, format("{} was mounted by user {}", escaped(mount.mount_point), owner));
    }
    return ask_daemon(mount, "status", patience, [](std::string_view) {});
}

Result<std::string> ask_for_status(const MountEntry& mount, std::chrono::seconds patience) {
    std::string answer;
    const auto asked =
        ask_daemon(mount, "status", patience, [&](std::string_view line) { answer = std::string(line); });
    if (!asked) {
        return failure(asked.error());
    }
    if (answer.empty()) {
        return failure(EPROTO, format("{}: the daemon did not return a status", escaped(mount.mount_point)));
    }
    return answer;
}

std::vector<Result<std::string>> ask_detached(const std::vector<MountEntry>& mounts, const std::string& directory,
                                              std::chrono::seconds patience) {
    const std::string place = control_directory(getuid(), getuid(), process_environment());
    std::set<std::string> of_mounts;
    for (const MountEntry& mount : mounts) {
        of_mounts.insert(control_path(place, mount.mount_point));
    }
    std::vector<Result<std::string>> answers;
    std::error_code problem;
    for (std::filesystem::directory_iterator entry(place, problem), end; entry != end; entry.increment(problem)) {
        const std::string path = entry->path().string();
        if (entry->path().extension() != ".sock" || of_mounts.contains(path) ||
            (!directory.empty() && !is_of_same_place(path, control_path(place, resolved_mount_point(directory))))) {
            continue;
        }
        auto answer = status_at(path, getuid(), patience);
        const bool is_over = answer
                                 ? answer->empty() || !device_in(*answer).empty()
                                 : answer.error().errno_value == ECONNREFUSED || answer.error().errno_value == ENOENT;
        if (!is_over) {
            answers.push_back(answer ? std::move(answer)
                                     : failure(answer.error().errno_value,
                                               format("a daemon without a mount: {}", answer.error().message)));
        }
    }
    return answers;
}

}  // namespace ckptfs
