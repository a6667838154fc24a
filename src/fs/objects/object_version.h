// SPDX-License-Identifier: Apache-2.0
// One version of an object, as the file that it is in the mount.
#pragma once

#include <cstdint>
#include <string>

#include "ckptfs/clock.h"
#include "fs/file_operations.h"

namespace ckptfs::fs {

struct ObjectVersion {
    std::string etag;
    // Size in bytes of the file, or of a symbolic link's target.
    std::uint64_t size = 0;
    // Size in bytes of the object in the bucket.
    std::uint64_t stored_size = 0;
    WallTime modified{};
    FileType type = FileType::kFile;
};

}  // namespace ckptfs::fs
