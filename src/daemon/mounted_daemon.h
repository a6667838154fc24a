// SPDX-License-Identifier: Apache-2.0
// The daemon behind a mount point, as commands find it.
// Threads: used by one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

// The mount that the daemon serving `directory` made; `directory` may be a bind mount of it. EINVAL if no ckptfs is
// mounted there.
Result<MountEntry> find_mount(const std::string& directory);
// As find_mount(), if the mount can be ended: EINVAL for a bind mount, which umount(8) removes, and EBUSY if there are
// mounts inside it, which would be hidden.
Result<MountEntry> find_mount_to_end(const std::string& directory);
// All ckptfs mounts here that this user made, or for root, any user; without bind mounts of them.
Result<std::vector<MountEntry>> find_mounts();
// As call_daemon(), to the daemon behind this mount; an error says what to do if its program has ended.
Result<pid_t> ask_daemon(const MountEntry& mount, const std::string& request, std::chrono::seconds patience,
                         const std::function<void(std::string_view)>& on_line);

// The daemon behind this mount, if it is this user's own or root's: the only ones whose options may be taken over,
// because options name programs to run. EPERM if it is another user's.
Result<pid_t> find_trusted_daemon(const MountEntry& mount, std::chrono::seconds patience);

// The status of the daemon behind this mount, as JSON.
Result<std::string> ask_for_status(const MountEntry& mount, std::chrono::seconds patience);
// The statuses of this user's daemons that serve none of `mounts`: they have lost their mount and still save. Daemons
// that have ended are left out. `directory`: where they were mounted; empty for anywhere.
std::vector<Result<std::string>> ask_detached(const std::vector<MountEntry>& mounts, const std::string& directory,
                                              std::chrono::seconds patience);

}  // namespace ckptfs
