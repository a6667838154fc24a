// SPDX-License-Identifier: Apache-2.0
// The ID by which other mounts know a disk that has acknowledged changes.
//
// A copy of the directory is another disk, and the first may be in use: its mount must not speak for that one. So a
// copy gets an ID of its own. A copy of files shows in the inode, which the ID's file names itself. A copy of the whole
// disk, as in the image of a machine or the clone of a volume, shows in the device while the kernel's boot is the same,
// which a container that is started again under another host name does not change; in another boot, in the host's name.
// The disk keeps its ID if a mount has left something unsent: by the ID other mounts know of that.
//
// Threads: waits for the disk.
#pragma once

#include <string>

#include "ckptfs/status.h"

namespace ckptfs {

struct DiskHost {
    std::string name;
    // Identifies the boot of the kernel; empty if it is not known.
    std::string boot;
};

// Empty if the kernel does not tell.
[[nodiscard]] std::string this_boot();

// Reads the ID from `directory`, or makes one. `is_left`: something is unsent.
Result<std::string> disk_id(const std::string& directory, const DiskHost& host, bool is_left);

}  // namespace ckptfs
