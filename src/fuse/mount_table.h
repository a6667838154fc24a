// SPDX-License-Identifier: Apache-2.0
// What /proc/self/mountinfo says about mounts, without touching them: a daemon that calls stat() on its own mount waits
// for itself.
//
// Threads: pure, or one read of a file.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs {

inline constexpr std::string_view kFileSystemType = "fuse.ckptfs";

// One line of /proc/self/mountinfo, proc_pid_mountinfo(5).
struct MountEntry {
    int mount_id = 0;
    // The id of the mount that it lies on.
    int parent_id = 0;
    unsigned major = 0;
    unsigned minor = 0;
    // The part of its file system that is seen at the mount point: "/", or what a bind mount shows.
    std::string root;
    std::string mount_point;
    // "fuse.ckptfs"
    std::string type;
    std::string source;
    // Options of the superblock: "rw,user_id=0,group_id=0,allow_other".
    std::string super_options;

    // user_id= of a FUSE mount.
    [[nodiscard]] std::optional<uid_t> owner() const;
};

// MAJOR:MINOR, which tells the file systems of a machine apart.
[[nodiscard]] std::string device_of(const MountEntry& mount);

// Lines that cannot be understood are left out.
std::vector<MountEntry> parse_mount_table(std::string_view text);

Result<std::vector<MountEntry>> read_mount_table();

// The mount that is visible at exactly this path: of several, the last one.
std::optional<MountEntry> mount_at(const std::vector<MountEntry>& table, std::string_view path);

// The mount of the same file system that the daemon made itself, not a bind mount of it; `shown` if the table has none.
const MountEntry& made_by_daemon(const std::vector<MountEntry>& table, const MountEntry& shown);

// "/mnt/a, /mnt/b": what is mounted below this mount, and hidden when it goes; empty if nothing is.
std::string mounts_inside(const std::vector<MountEntry>& table, const MountEntry& mount);

// The mount that holds this absolute, resolved path.
std::optional<MountEntry> mount_holding(const std::vector<MountEntry>& table, std::string_view path);

}  // namespace ckptfs
