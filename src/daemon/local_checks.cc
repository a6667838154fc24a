// SPDX-License-Identifier: Apache-2.0
#include "daemon/local_checks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/private_directory.h"
#include "base/process_inspector.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

namespace stdfs = std::filesystem;

bool is_fuse(const MountEntry& entry) {
    return entry.type == "fuse" || entry.type.starts_with("fuse.");
}

Failure mount_point_failure(const std::string& directory, const std::error_code& problem) {
    const std::string shown = escaped(directory);
    if (problem == std::errc::no_such_file_or_directory) {
        return failure(ENOENT, format("the mount point {} does not exist; make it with mkdir -p", shown));
    }
    if (problem == std::errc::not_connected) {
        return failure(ENOTCONN,
                       format("{} is a mount whose program has ended; remove it with fusermount3 -u {}", shown, shown));
    }
    if (problem == std::errc::not_a_directory) {
        return failure(ENOTDIR, format("the mount point {} is not a directory", shown));
    }
    return failure(problem.value(), format("the mount point {} cannot be used: {}", shown, problem.message()));
}

bool is_on_path(std::string_view program, std::string_view search_path) {
    while (!search_path.empty()) {
        const std::size_t end = std::min(search_path.find(':'), search_path.size());
        const std::string candidate = format("{}/{}", search_path.substr(0, end), program);
        if (access(candidate.c_str(), X_OK) == 0) {
            return true;
        }
        search_path.remove_prefix(std::min(end + 1, search_path.size()));
    }
    return false;
}

}  // namespace

std::string resolved_mount_point(const std::string& directory) {
    std::error_code problem;
    stdfs::path path = stdfs::absolute(directory, problem).lexically_normal();
    if (!path.has_filename()) {
        path = path.parent_path();
    }
    const stdfs::path parent = stdfs::canonical(path.parent_path(), problem);
    return problem ? path.string() : (parent / path.filename()).string();
}

Result<std::string> check_mount_point(const std::string& directory, const std::vector<MountEntry>& table) {
    std::error_code problem;
    // Checked before anything touches the directory: a mount that hangs would hang us as well.
    const std::string plain = resolved_mount_point(directory);
    if (const auto mounted = mount_at(table, plain); mounted && mounted->type == kFileSystemType) {
        return failure(EBUSY, format("{} is already mounted at {}; unmount it first with ckptfs unmount {}",
                                     escaped(mounted->source), escaped(plain), escaped(directory)));
    }
    const stdfs::path resolved = stdfs::canonical(directory, problem);
    if (problem) {
        return mount_point_failure(directory, problem);
    }
    if (const auto mounted = mount_at(table, resolved.string()); mounted && is_fuse(*mounted)) {
        return failure(EBUSY, format("{} is already mounted at {}; unmount it first", escaped(mounted->source),
                                     escaped(resolved.string())));
    }
    if (!stdfs::is_directory(resolved, problem)) {
        return mount_point_failure(directory, problem ? problem : std::make_error_code(std::errc::not_a_directory));
    }
    const stdfs::directory_iterator entries(resolved, problem);
    if (problem) {
        return mount_point_failure(directory, problem);
    }
    if (entries != stdfs::directory_iterator()) {
        return failure(ENOTEMPTY, format("the mount point {} is not empty; its files would be hidden: choose another "
                                         "directory or empty it",
                                         escaped(directory)));
    }
    return resolved.string();
}

std::string search_path(const Environment& environment) {
    return environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
}

Status check_fuse(const std::string& device, bool is_root, const std::string& search_path) {
    const FileDescriptor fuse(open(device.c_str(), O_RDWR | O_CLOEXEC));
    if (!fuse && (errno == ENOENT || errno == ENODEV || errno == ENXIO)) {
        return failure(ENODEV, format("there is no {}: load the kernel module with modprobe fuse; a container needs "
                                      "--device /dev/fuse --cap-add SYS_ADMIN",
                                      device));
    }
    if (!fuse && (errno == EPERM || errno == EACCES)) {
        return failure(errno, format("{} may not be opened ({}): a container needs --device /dev/fuse --cap-add "
                                     "SYS_ADMIN; otherwise make it readable and writable for this user",
                                     device, std::strerror(errno)));
    }
    if (!fuse) {
        return failure(errno, format("{} cannot be opened: {}", device, std::strerror(errno)));
    }
    if (!is_root && !is_on_path("fusermount3", search_path)) {
        return failure(ENOENT, "fusermount3 is not installed; install the package fuse3, or mount as root");
    }
    return {};
}

Status check_outside(const std::string& path, const std::string& mount_point) {
    std::error_code problem;
    std::filesystem::path real = std::filesystem::weakly_canonical(path, problem);
    if (problem) {
        real = std::filesystem::path(path).lexically_normal();
    }
    if (real == mount_point || real.string().starts_with(mount_point + "/")) {
        return failure(EINVAL,
                       format("{} is inside the mount, so the daemon would wait for itself; use a path outside it",
                              escaped(path)));
    }
    return {};
}

namespace {

Status check_local(const char* option, const std::string& directory, const std::vector<MountEntry>& table) {
    if (const auto holding = mount_holding(table, directory); holding && is_fuse(*holding)) {
        return failure(EINVAL, format("{} {} lies on a FUSE mount ({}); choose a directory on a local disk", option,
                                      escaped(directory), escaped(holding->mount_point)));
    }
    return {};
}

}  // namespace

Status check_staging_directory(const std::string& directory, const std::vector<MountEntry>& table) {
    std::error_code problem;
    const stdfs::path resolved = stdfs::canonical(directory, problem);
    if (problem || !stdfs::is_directory(resolved, problem)) {
        return failure(ENOTDIR, format("--staging-dir {} is not a directory", escaped(directory)));
    }
    if (Status local = check_local("--staging-dir", resolved.string(), table); !local) {
        return local;
    }
    if (access(resolved.c_str(), W_OK | X_OK) != 0) {
        return failure(errno,
                       format("--staging-dir {} cannot be written: {}", escaped(directory), std::strerror(errno)));
    }
    return {};
}

Result<std::string> place_of_cache(const std::string& directory, const std::vector<MountEntry>& table) {
    std::error_code problem;
    const stdfs::path given = stdfs::absolute(directory, problem);
    const stdfs::path resolved = problem ? given : stdfs::weakly_canonical(given, problem);
    if (problem) {
        return failure(problem.value(), format("--cache-dir {}: {}", escaped(directory), problem.message()));
    }
    if (Status local = check_local("--cache-dir", resolved.string(), table); !local) {
        return failure(local.error());
    }
    return resolved.string();
}

Status check_cache_directory(const std::string& directory, const std::vector<MountEntry>& table) {
    if (directory.empty()) {
        return {};
    }
    const Result<std::string> place = place_of_cache(directory, table);
    if (!place) {
        return failure(place.error());
    }
    Status made = make_private_directory(*place);
    return made ? Status() : failure(made.error().errno_value, "--cache-dir: " + made.error().message);
}

void say_what_cannot_be_told() {
    switch (exit_code_sight()) {
        case ExitCodeSight::kEveryUser:
            break;
        case ExitCodeSight::kOwnUser:
            log_info("files of killed writers are held back for processes of this user only (no CAP_SYS_PTRACE)");
            break;
        case ExitCodeSight::kNone:
            log_warning(
                "killed writers cannot be distinguished from writers that exit, so partial files of killed writers "
                "will be published (needs CAP_SYS_PTRACE and the PID namespace of the writers)");
            break;
    }
}

}  // namespace ckptfs
