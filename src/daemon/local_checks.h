// SPDX-License-Identifier: Apache-2.0
// What this machine must offer before a mount is tried. Each failure is one line that says what to do.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

// Resolves the directory's parent only: a mount at the directory may not answer.
[[nodiscard]] std::string resolved_mount_point(const std::string& directory);

// The absolute, resolved path of an existing, empty directory that is no mount of ours yet.
Result<std::string> check_mount_point(const std::string& directory, const std::vector<MountEntry>& table);

// PATH, or a default if it is unset: mount(8) removes it from the environment of users' helpers.
[[nodiscard]] std::string search_path(const Environment& environment);

// `device` is "/dev/fuse". Without root, fusermount3 must be found in `search_path` (PATH).
Status check_fuse(const std::string& device, bool is_root, const std::string& search_path);

// Checks a path that the daemon writes: EINVAL if it lies in the mount, also through links. An empty path passes.
Status check_outside(const std::string& path, const std::string& mount_point);

// Requires an existing directory that can be written and lies on no FUSE mount; a staging file on our own mount would
// make the daemon wait for itself.
Status check_staging_directory(const std::string& directory, const std::vector<MountEntry>& table);

// The absolute path of --cache-dir with links resolved; it need not exist yet. EINVAL on a FUSE mount.
Result<std::string> place_of_cache(const std::string& directory, const std::vector<MountEntry>& table);

// Checks place_of_cache(), and creates the directory if it is missing. Does nothing for an empty path.
Status check_cache_directory(const std::string& directory, const std::vector<MountEntry>& table);

// Logs which killed writers cannot be distinguished from writers that exit. Forks: call it before the first thread is
// started.
void say_what_cannot_be_told();

}  // namespace ckptfs
