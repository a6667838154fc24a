// SPDX-License-Identifier: Apache-2.0
#include "doctor/local_probes.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/numbers.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "daemon/local_checks.h"

namespace ckptfs::doctor {
namespace {

// Besides its connections a mount has its threads' descriptors of /dev/fuse, the log, a socket, and staged files.
constexpr std::uint64_t kOtherFiles = 256;
// Less than this is taken by one file that is changed in place.
constexpr std::uint64_t kLeastRoom = 64 * kMebibyte;

void add(Findings& findings, Probe probe, const Status& checked, std::string seen) {
    if (checked) {
        findings.add(probe, ProbeAnswer::kYes, std::move(seen));
    } else {
        findings.add(probe, ProbeAnswer::kNo, checked.error());
    }
}

void add_sight(Findings& findings, ExitCodeSight sight) {
    findings.add(Probe::kKilledWriters, sight == ExitCodeSight::kNone ? ProbeAnswer::kNo : ProbeAnswer::kYes,
                 sight == ExitCodeSight::kOwnUser ? "only where they run as this user (no CAP_SYS_PTRACE)" : "");
}

// The mount itself is not touched, because it may hang.
void add_mount_point(Findings& findings, const LocalPlaces& places) {
    const auto mount = mount_at(places.mounts, resolved_mount_point(places.mount_point));
    if (!mount || mount->type != kFileSystemType) {
        const auto checked = check_mount_point(places.mount_point, places.mounts);
        add(findings, Probe::kMountPoint, checked ? Status() : failure(checked.error()), places.mount_point);
        return;
    }
    const Status well = places.ask_daemon(*mount);
    if (well) {
        findings.add(Probe::kMountPoint, ProbeAnswer::kYes, format("{}, mounted", mount->mount_point));
    } else {
        findings.add(Probe::kMountPoint, ProbeAnswer::kNo, well.error().message);
    }
}

// Changes to a file that is in the bucket wait in this directory.
Status check_room(const std::string& directory) {
    struct statvfs disk {};
    if (statvfs(directory.c_str(), &disk) != 0) {
        return failure(errno, format("{}: {}", directory, std::strerror(errno)));
    }
    const std::uint64_t room = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    return room >= kLeastRoom ? Status()
                              : failure(ENOSPC, format("{} has room for {} MiB: writes in any order will fail there",
                                                       directory, mebibytes(room)));
}

Status check_staging(const LocalPlaces& places) {
    const Status usable = check_staging_directory(places.staging_directory, places.mounts);
    return usable ? check_room(places.staging_directory) : usable;
}

Status check_cache(const LocalPlaces& places) {
    const Result<std::string> place = place_of_cache(places.cache_directory, places.mounts);
    return place ? check_private_place(*place) : failure(place.error());
}

void add_cache(Findings& findings, const LocalPlaces& places) {
    if (places.cache_directory.empty()) {
        return;
    }
    add(findings, Probe::kCacheDirectory, check_cache(places), places.cache_directory);
    if (!places.kernel_release.empty()) {
        const bool is_possible = places.is_root && has_passthrough(places.kernel_release);
        findings.add(Probe::kPassthrough, is_possible ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                     format("Linux {}, {}", places.kernel_release, places.is_root ? "root" : "not root"));
    }
}

}  // namespace

bool has_passthrough(std::string_view kernel_release) {
    constexpr std::pair<unsigned, unsigned> kFirst{6, 9};
    const auto major = take_number<unsigned>(kernel_release);
    if (!major || !kernel_release.starts_with('.')) {
        return false;
    }
    kernel_release.remove_prefix(1);
    const auto minor = take_number<unsigned>(kernel_release);
    return minor && std::pair{*major, *minor} >= kFirst;
}

Status check_private_place(const std::string& path) {
    namespace stdfs = std::filesystem;
    const Status is_private = check_private_directory(path);
    if (is_private && access(path.c_str(), W_OK | X_OK) != 0) {
        return failure(errno, format("{} cannot be written: {}", path, std::strerror(errno)));
    }
    if (is_private || is_private.error().errno_value == EPERM) {
        return is_private;
    }
    std::error_code problem;
    stdfs::path above = stdfs::path(path).parent_path();
    while (!stdfs::exists(above, problem) && above.has_relative_path()) {
        above = above.parent_path();
    }
    if (access(above.c_str(), W_OK | X_OK) != 0) {
        return failure(errno, format("{} cannot be made in {}: {}", path, above.string(), std::strerror(errno)));
    }
    return {};
}

void probe_this_machine(const LocalPlaces& places, Findings& findings) {
    add(findings, Probe::kFuse, check_fuse(places.fuse_device, places.is_root, places.search_path), "");
    if (!places.mount_point.empty()) {
        add_mount_point(findings, places);
    }
    add(findings, Probe::kStaging, check_staging(places), places.staging_directory);
    const std::uint64_t needed = static_cast<std::uint64_t>(places.max_connections) + kOtherFiles;
    findings.add(Probe::kOpenFiles, places.open_files_limit >= needed ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 format("{}, and {} connections at most", places.open_files_limit, places.max_connections));
    add_sight(findings, places.exit_code_sight);
    add(findings, Probe::kControlSockets, check_private_place(places.control_directory), places.control_directory);
    if (places.state_directory) {
        add(findings, Probe::kStateDirectory, check_private_place(*places.state_directory), *places.state_directory);
    } else {
        findings.add(Probe::kStateDirectory, ProbeAnswer::kNo, "this user has no home");
    }
    add_cache(findings, places);
}

}  // namespace ckptfs::doctor
