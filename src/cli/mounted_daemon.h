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

// EINVAL where no ckptfs is mounted.
Result<MountEntry> find_mount(const std::string& directory);
// Of a mount that was taken away (umount -l) while its daemon still saves: as it was mounted there by this user. ENOENT
// where no daemon listens.
Result<MountEntry> find_detached(const std::string& directory);
// All that are mounted here by this user, or for root, by anybody.
Result<std::vector<MountEntry>> find_mounts();
// As call_daemon(), of the daemon behind this mount; an error says what to do where its program has ended.
Result<pid_t> ask_daemon(const MountEntry& mount, const std::string& request, std::chrono::seconds patience,
                         const std::function<void(std::string_view)>& on_line);

// The daemon behind this mount, where it is this user's own or root's: the only ones whose options may be taken over,
// because options name programs to run. EPERM where it is another user's.
Result<pid_t> find_trusted_daemon(const MountEntry& mount, std::chrono::seconds patience);

// What `ckptfs status --json` prints.
Result<std::string> ask_for_status(const MountEntry& mount, std::chrono::seconds patience);
// The same of this user's daemons that none of these mounts belongs to: whose mount was taken away, and who still save.
// Those that have ended are left out.
std::vector<Result<std::string>> ask_detached(const std::vector<MountEntry>& mounts, std::chrono::seconds patience);

}  // namespace ckptfs
