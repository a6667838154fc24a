// SPDX-License-Identifier: Apache-2.0
// The daemon behind a mount point, as commands find it.
// Threads: used by one thread.
#pragma once

#include <string>
#include <vector>

#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

// EINVAL where no ckptfs is mounted.
Result<MountEntry> find_mount(const std::string& directory);
// All that are mounted here by this user, or for root, by anybody.
Result<std::vector<MountEntry>> find_mounts();
// The path of its control socket.
std::string daemon_socket(const MountEntry& mount);

}  // namespace ckptfs
