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
    // Empty where only a store is asked for.
    std::string mount_point;
    std::string staging_directory;
    std::string control_directory;
    std::optional<std::string> state_directory;
    // Empty where nothing is kept on a disk.
    std::string cache_directory;
    // Where the kernel is to read there itself: uname(2), "6.9.3-generic". Else empty.
    std::string kernel_release;
    std::vector<MountEntry> mounts;
    // Asks the daemon of a mount whether it is well.
    std::function<Status(const MountEntry&)> ask_daemon;
    // Of this process: that of a mount that is started in its place.
    std::uint64_t open_files_limit = 0;
    int max_connections = 0;
    // Asked before the first thread.
    ExitCodeSight exit_code_sight = ExitCodeSight::kNone;
};

void probe_this_machine(const LocalPlaces& places, Findings& findings);

// FUSE_PASSTHROUGH, fuse(4): since Linux 6.9.
[[nodiscard]] bool has_passthrough(std::string_view kernel_release);

// Whether a directory that only this user may enter is one, or can be made.
[[nodiscard]] Status check_private_place(const std::string& path);

}  // namespace ckptfs::doctor
