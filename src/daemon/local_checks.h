// SPDX-License-Identifier: Apache-2.0
// What this machine must offer before a mount is tried. Each failure is one line that says what to do.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

// Resolves the directory's parent only: a mount there may not answer.
[[nodiscard]] std::string resolved_mount_point(const std::string& directory);

// The absolute, resolved path of an existing, empty directory that is no mount of ours yet.
Result<std::string> check_mount_point(const std::string& directory, const std::vector<MountEntry>& table);

// PATH. mount(8) takes it away from the helpers of users.
[[nodiscard]] std::string search_path(const Environment& environment);

// `device` is "/dev/fuse". Without root, fusermount3 must be found in `search_path` (PATH).
Status check_fuse(const std::string& device, bool is_root, const std::string& search_path);

// What the daemon writes: EINVAL where it lies in the mount, by whatever link. An empty path lies nowhere.
Status check_outside(const std::string& path, const std::string& mount_point);

// An existing directory that can be written and lies on no FUSE mount; a staging file on our own mount would make the
// daemon wait for itself.
Status check_staging_directory(const std::string& directory, const std::vector<MountEntry>& table);

// By whatever link; it may be missing as yet. EINVAL on a FUSE mount.
Result<std::string> place_of_cache(const std::string& directory, const std::vector<MountEntry>& table);

// Where one is named: made if it is missing.
Status check_cache_directory(const std::string& directory, const std::vector<MountEntry>& table);

// To the log: which killed writers cannot be told from those that ended. Forks, so that it comes before the first
// thread.
void say_what_cannot_be_told();

}  // namespace ckptfs
