// SPDX-License-Identifier: Apache-2.0
// What a cache directory holds, and the removal of what exceeds its limit.
//
// A kept file is two files of one name: NAME.data, as large as the file and sparse, and NAME.index (kept_index.h),
// whose modification time is that of the last use. A process that has the file open holds a shared flock(2) on its
// index: only files without such a lock are removed.
//
// Threads: all functions may be called from any thread, and wait for the disk. Other processes may use the directory at
// the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"
#include "disk/kept_index.h"

namespace ckptfs {

struct KeptOnDisk {
    std::string name;
    // Disk space that it takes, in bytes.
    std::uint64_t bytes = 0;
    WallTime used{};
};

// Disk space that a kept file takes, in bytes.
[[nodiscard]] std::uint64_t bytes_taken(const std::string& directory, const std::string& name);

// All kept files, except those that cannot be examined.
[[nodiscard]] std::vector<KeptOnDisk> list_kept(const std::string& directory);

// Removes the files used longest ago until the rest takes `limit` bytes at most, or is in use. Returns the bytes that
// the rest takes.
std::uint64_t make_room(const std::string& directory, std::uint64_t limit);

// False if the file is in use, or cannot be removed.
bool remove_kept(const std::string& directory, const std::string& name);

[[nodiscard]] std::string data_path(const std::string& directory, const std::string& name);
[[nodiscard]] std::string index_path(const std::string& directory, const std::string& name);

// The header of the file's index; empty if there is none.
[[nodiscard]] std::string header_on_disk(const std::string& directory, const std::string& name);
// Size of the file, if something of this version is kept.
[[nodiscard]] std::optional<std::uint64_t> size_on_disk(const std::string& directory, const KeptVersion& version);

}  // namespace ckptfs
