// SPDX-License-Identifier: Apache-2.0
// What `ckptfs status` reports of a mount. The daemon sends it as JSON; the command makes the text for users from it.
// Pure, but for set_files(), which asks the filesystem.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "daemon/traffic.h"
#include "disk/disk_cache.h"
#include "fs/file_system.h"
#include "read/block_cache.h"
#include "s3/request_sender.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

struct FileInFlight {
    std::string key;
    // All bytes, not compressed.
    std::uint64_t size = 0;
    // As they are stored: taken from the program, and in the bucket.
    std::uint64_t bytes_acknowledged = 0;
    std::uint64_t bytes_in_store = 0;
    int parts_in_flight = 0;
    // Something of it is in no commit yet.
    bool unsaved = false;
    // Why it cannot be saved; empty where it can.
    std::string failure;

    friend bool operator==(const FileInFlight&, const FileInFlight&) = default;
};

struct FileBeingRead {
    std::string key;
    std::uint64_t size = 0;
    // Where the last read ended.
    std::uint64_t position = 0;

    friend bool operator==(const FileBeingRead&, const FileBeingRead&) = default;
};

// A file that failed, and was neither written again nor removed: no commit marker can appear beside or above it.
struct UnwrittenFile {
    std::string key;
    std::string reason;

    friend bool operator==(const UnwrittenFile&, const UnwrittenFile&) = default;
};

// Requests to the store, each attempt counted.
struct StoreActivity {
    std::uint64_t requests = 0;
    std::uint64_t retries = 0;
    // Answers that asked for fewer requests (503).
    std::uint64_t slow_downs = 0;
    // Reads that were asked again on another connection, because others of their size are far sooner.
    std::uint64_t late_reads = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t waiting = 0;
    // In flight at most, as the store bears it now.
    std::uint64_t limit = 0;

    friend bool operator==(const StoreActivity&, const StoreActivity&) = default;
};

// The files that this node keeps on a local disk.
struct DiskActivity {
    // Empty where none are.
    std::string directory;
    std::uint64_t size = 0;
    DiskCacheStatistics counts;
    // Files that the kernel was given to read, and that are in no count of bytes.
    std::uint64_t opens_passed_through = 0;
    // Files that were written, and will be kept once the disk has time.
    std::uint64_t files_to_keep = 0;
    // The store is not asked (--cache-only), and nothing is kept.
    bool is_all = false;

    friend bool operator==(const DiskActivity&, const DiskActivity&) = default;
};

// What the disk has acknowledged, and is not in the bucket.
struct UnsentActivity {
    // --ack disk
    bool acknowledges = false;
    std::uint64_t changes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t limit = 0;
    // Since the oldest was acknowledged.
    std::int64_t seconds = 0;
    // Calls that wait because of the limit.
    std::uint64_t waiting = 0;
    // In the order of acknowledgement: the last one, and the last one before which all are in the bucket.
    std::uint64_t last_acknowledged = 0;
    std::uint64_t all_sent_up_to = 0;
    // The one that fails, and why; empty where none does.
    std::string failing_key;
    std::string failure;
    // Markers that were acknowledged and not made, until they are made good; one of them.
    std::uint64_t given_up = 0;
    std::string given_up_key;
    // UnsentStatus::places and changes_elsewhere.
    std::vector<std::string> places;
    std::uint64_t changes_elsewhere = 0;

    friend bool operator==(const UnsentActivity&, const UnsentActivity&) = default;
};

struct MountStatus {
    // Of the largest, or the last that failed, where there are more.
    static constexpr std::size_t kMostFiles = 50;

    std::string source;
    std::string mount_point;
    std::string version;
    std::int64_t pid = 0;
    std::int64_t seconds_mounted = 0;
    bool draining = false;
    // Those open for writing, and how many of them are not saved.
    std::uint64_t files_open = 0;
    std::uint64_t files_unsaved = 0;
    // Since the mount was made: those that a program could not write, and those whose writer was killed.
    std::uint64_t files_failed = 0;
    std::uint64_t files_held_back = 0;
    std::uint64_t names_known = 0;
    // Of these, those that were neither written again nor removed.
    std::uint64_t files_unwritten = 0;
    std::vector<UnwrittenFile> unwritten;
    std::vector<FileInFlight> files;
    std::vector<std::string> renames;
    // Names whose removal was acknowledged and is not made yet.
    std::uint64_t removals = 0;
    // Files that failed, and of which other mounts do not know yet.
    std::uint64_t failures_untold = 0;
    // Those read in the last seconds.
    std::uint64_t files_read = 0;
    std::vector<FileBeingRead> reads;
    // Bytes since the mount was made, and a second over the last few.
    Traffic totals;
    Traffic rates;
    StoreActivity store;
    DiskActivity disk;
    UnsentActivity unsent;
    // Reads answered from memory, and those that had to wait.
    std::uint64_t cache_hits = 0;
    std::uint64_t cache_misses = 0;
    std::uint64_t memory_used = 0;
    std::uint64_t memory_for_reading = 0;
    std::uint64_t memory_total = 0;
    // Taken from the system, whether used or not.
    std::uint64_t memory_resident = 0;
    // The last errors and warnings of the log, oldest first.
    std::vector<std::string> problems;

    // Nothing that a program was told is written would be lost, or is on this machine only; nothing is half done, and
    // no other mount would commit a marker over what failed here.
    [[nodiscard]] bool safe_to_stop() const {
        return files_unsaved == 0 && renames.empty() && removals == 0 && failures_untold == 0 && unsent.changes == 0;
    }

    friend bool operator==(const MountStatus&, const MountStatus&) = default;
};

// What a mount has acknowledged by some time, for a wait until it is in the bucket.
class AcknowledgedByNow {
public:
    explicit AcknowledgedByNow(const MountStatus& status);

    // `status`: of later, perhaps of another daemon. One that has the place on the disk as its own may begin its
    // numbers anew: then it is what that one has acknowledged by its first status. Where a place that is waited for is
    // none of its, EIO.
    [[nodiscard]] Result<bool> is_sent(const MountStatus& status);

private:
    std::int64_t pid_;
    // The mount's own first, and others with something left. Empty for none, and for daemons that do not say.
    std::vector<std::string> places_;
    std::uint64_t last_;
    bool was_sent_;
};

// The parts that change.
void set_files(MountStatus& status, const fs::FileSystem& fs);
void set_store(MountStatus& status, const s3::S3Statistics& store);
void set_cache(MountStatus& status, const ReadStatistics& cache);
void set_disk(MountStatus& status, const DiskCache& disk, std::uint64_t files_to_keep, bool is_all);
void set_unsent(MountStatus& status, const UnsentStatus& unsent, std::uint64_t limit, WallTime now);
void set_memory(MountStatus& status, const PoolUsage& usage);

// Several lines.
[[nodiscard]] std::string status_text(const MountStatus& status);

}  // namespace ckptfs
