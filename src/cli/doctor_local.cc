// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_local.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "cli/local_checks.h"
#include "cli/private_directory.h"

namespace ckptfs {
namespace {

// Besides its connections a mount has its threads' descriptors of /dev/fuse, the log, a socket, and staged files.
constexpr std::uint64_t kOtherFiles = 256;

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

}  // namespace

Status check_private_place(const std::string& path) {
    namespace fs = std::filesystem;
    const Status is_private = check_private_directory(path);
    if (is_private && access(path.c_str(), W_OK | X_OK) != 0) {
        return failure(errno, format("{} cannot be written: {}", path, std::strerror(errno)));
    }
    if (is_private || is_private.error().errno_value == EPERM) {
        return is_private;
    }
    std::error_code problem;
    fs::path above = fs::path(path).parent_path();
    while (!fs::exists(above, problem) && above.has_relative_path()) {
        above = above.parent_path();
    }
    if (access(above.c_str(), W_OK | X_OK) != 0) {
        return failure(errno, format("{} cannot be made in {}: {}", path, above.string(), std::strerror(errno)));
    }
    return {};
}

void probe_this_machine(const LocalPlaces& places, Findings& findings) {
    add(findings, Probe::kFuse, check_fuse(places.fuse_device, places.is_root, places.search_path), "");
    add(findings, Probe::kStaging, check_staging_directory(places.staging_directory, places.mounts),
        places.staging_directory);
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
}

}  // namespace ckptfs
