// SPDX-License-Identifier: Apache-2.0
#include "cli/mounted_daemon.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/control.h"
#include "cli/local_checks.h"

namespace ckptfs {
namespace {

std::optional<std::string> environment(const char* name) {
    // Before any thread is started.
    const char* value = std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

Result<MountEntry> find_mount(const std::string& directory) {
    const auto table = read_mount_table();
    if (!table) {
        return failure(table.error());
    }
    const std::string mount_point = resolved_mount_point(directory);
    auto mounted = mount_at(*table, mount_point);
    if (!mounted || mounted->type != kFileSystemType) {
        // The last part may be a symbolic link; no mount of ours is there, so that it can be resolved.
        std::error_code problem;
        const auto resolved = std::filesystem::canonical(mount_point, problem);
        mounted = problem ? std::nullopt : mount_at(*table, resolved.string());
    }
    if (!mounted || mounted->type != kFileSystemType) {
        return failure(EINVAL, format("no ckptfs is mounted at {}", escaped(directory)));
    }
    return *mounted;
}

Result<std::vector<MountEntry>> find_mounts() {
    auto table = read_mount_table();
    if (table) {
        const uid_t self = getuid();
        std::erase_if(*table, [self](const MountEntry& each) {
            return each.type != kFileSystemType || (self != 0 && each.owner() != self);
        });
    }
    return table;
}

std::string daemon_socket(const MountEntry& mount) {
    return control_path(control_directory(mount.owner().value_or(0), getuid(), environment), mount.mount_point);
}

}  // namespace ckptfs
