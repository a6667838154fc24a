// SPDX-License-Identifier: Apache-2.0
// What is remembered of a file that could not be written, on this mount and, in the bucket, for others.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"

namespace ckptfs::fs {

struct FailedRecord {
    // Key of the file.
    std::string key;
    std::string host;
    // Why the file failed, in one line.
    std::string reason;
    // ETag of the version that stayed: empty if there was none, absent if it is not known.
    std::optional<std::string> etag_before;
    // Commits of the file that failed, by kWriteIdMetadata: one whose reply was lost may have taken effect.
    std::vector<std::string> unanswered{};
    // When the file failed, at the latest: when the record was written, less `late`.
    WallTime failed{};
    // How long before the record was written the file had failed, at least.
    std::chrono::seconds late{0};
    // When the file failed, if its record was written later: its directory was renamed since, or its mount ended.
    std::optional<WallTime> since{};
    // When the file began to be written, where that is known.
    std::optional<WallTime> began{};
    // Only in a mount's journal: when the file failed under this name, by the mount's clock.
    std::optional<WallTime> noted{};
    // The process that failed to write the file, if it was one of this mount.
    pid_t process = 0;
    // For failures of this mount: which failure of the file it is, from 1.
    int number = 0;
    // ETag of the record if another mount has written it; empty for this mount's own.
    std::string record_etag;
};

// Files that failed on a mount and were neither written again nor removed.
struct UnwrittenFiles {
    std::uint64_t count = 0;
    // The last failures, the latest first.
    std::vector<FailedRecord> latest;
};

}  // namespace ckptfs::fs
