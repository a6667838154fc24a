// SPDX-License-Identifier: Apache-2.0
// A file of lines with their time, which is renamed to NAME.1.EXT and started again when it is large.
//
// Lines are written by a thread of its own. If they come faster than the disk takes them, the oldest that wait are
// dropped.
// Threads: write() may be called from any thread, and never blocks on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs {

class RotatingLog {
public:
    virtual ~RotatingLog() = default;
    // At most `max_size` bytes per file, and `old_files` old ones. Appends to a file that is there.
    static Result<std::unique_ptr<RotatingLog>> create(const std::string& path, std::uint64_t max_size,
                                                       std::size_t old_files);
    virtual void write(std::string_view line) = 0;
};

}  // namespace ckptfs
