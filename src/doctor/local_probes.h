// SPDX-License-Identifier: Apache-2.0
// What `ckptfs doctor` asks of this machine: what a mount would need here. Changes nothing.
// Threads: blocks on this machine's files only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_inspector.h"
#include "doctor/findings.h"
#include "fuse/mount_table.h"

namespace ckptfs::doctor {

struct LocalPlaces {
    // "/dev/fuse"
    std::string fuse_device;
    bool is_root = false;
    // PATH.
    std::string search_path;
    // Empty if only a store is checked.
    std::string mount_point;
    std::string staging_directory;
    std::string control_directory;
    std::optional<std::string> state_directory;
    // Empty without --cache-dir.
    std::string cache_directory;
    // From uname(2), "6.9.3-generic", if the kernel is to read files in the cache directory itself; else empty.
    std::string kernel_release;
    std::vector<MountEntry> mounts;
    // Asks the daemon of a mount whether it is well.
    std::function<Status(const MountEntry&)> ask_daemon;
    // The limit that a mount would have if started in place of this process.
    std::uint64_t open_files_limit = 0;
    int max_connections = 0;
    // Determined before the first thread was started.
    ExitCodeSight exit_code_sight = ExitCodeSight::kNone;
};

void probe_this_machine(const LocalPlaces& places, Findings& findings);

// FUSE_PASSTHROUGH, fuse(4): since Linux 6.9.
[[nodiscard]] bool has_passthrough(std::string_view kernel_release);

// Whether `path` is a directory that only this user may enter, and that can be written, or one that can be made.
[[nodiscard]] Status check_private_place(const std::string& path);

}  // namespace ckptfs::doctor
