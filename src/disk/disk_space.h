// SPDX-License-Identifier: Apache-2.0
// What a cache directory holds, and what has to go so that it holds no more than it may.
//
// A kept file is two files of one name: NAME.data, as large as the file and sparse, and NAME.index (kept_index.h), by
// whose time of change the file that was used longest ago is known. Who has it open holds a shared flock(2) on its
// index: only what is held by none is removed.
//
// Threads: all functions may be called from any thread, and wait for the disk. Other processes may use the directory
// at the same time.
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
    // Of the disk.
    std::uint64_t bytes = 0;
    WallTime used{};
};

// Of the disk, by a kept file.
[[nodiscard]] std::uint64_t bytes_taken(const std::string& directory, const std::string& name);

// Leaves out what it may not look at.
[[nodiscard]] std::vector<KeptOnDisk> list_kept(const std::string& directory);

// Removes what was used longest ago until the rest takes `limit` bytes at most, or is in use. Returns what it takes.
std::uint64_t make_room(const std::string& directory, std::uint64_t limit);

// False where it is in use, or cannot be removed.
bool remove_kept(const std::string& directory, const std::string& name);

[[nodiscard]] std::string data_path(const std::string& directory, const std::string& name);
[[nodiscard]] std::string index_path(const std::string& directory, const std::string& name);

// Of its index; empty where there is none.
[[nodiscard]] std::string header_on_disk(const std::string& directory, const std::string& name);
// Of the file, where something of this version is kept.
[[nodiscard]] std::optional<std::uint64_t> size_on_disk(const std::string& directory, const KeptVersion& version);

}  // namespace ckptfs
