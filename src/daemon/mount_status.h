// SPDX-License-Identifier: Apache-2.0
// What `ckptfs status` reports of a mount. The daemon sends it as JSON; the command makes the text for users from it.
// Pure, except set_files() and set_disk(), which ask the filesystem and the disk cache.
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
    // Size of the file, uncompressed.
    std::uint64_t size = 0;
    // Stored sizes of what was taken from the program, and of what is in the bucket.
    std::uint64_t bytes_acknowledged = 0;
    std::uint64_t bytes_in_store = 0;
    int parts_in_flight = 0;
    // Not all of it is committed yet.
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
    // Replies that asked for fewer requests (503).
    std::uint64_t slow_downs = 0;
    // Reads that were sent again on another connection, because others of their size are far faster.
    std::uint64_t late_reads = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t waiting = 0;
    // The largest number of requests in flight: halved by 503, raised again by success.
    std::uint64_t limit = 0;

    friend bool operator==(const StoreActivity&, const StoreActivity&) = default;
};

// The files that this node keeps on a local disk.
struct DiskActivity {
    // Empty without --cache-dir.
    std::string directory;
    std::uint64_t size = 0;
    DiskCacheStatistics counts;
    // Opens of files that the kernel reads itself; their bytes are not counted.
    std::uint64_t opens_passed_through = 0;
    // Written files that will be kept once the disk has time.
    std::uint64_t files_to_keep = 0;
    // With --cache-only: the store is not asked, and nothing more is kept.
    bool is_all = false;

    friend bool operator==(const DiskActivity&, const DiskActivity&) = default;
};

// What the disk has acknowledged and is not in the bucket yet.
struct UnsentActivity {
    // With --ack disk.
    bool acknowledges = false;
    std::uint64_t changes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t limit = 0;
    // Seconds since the oldest change was acknowledged.
    std::int64_t seconds = 0;
    // Calls that wait because of the limit.
    std::uint64_t waiting = 0;
    // Numbers of changes in the order of acknowledgement: of the last one, and of the last one up to which all are in
    // the bucket.
    std::uint64_t last_acknowledged = 0;
    std::uint64_t all_sent_up_to = 0;
    // Key of the change that failed last, and why; empty if none fails. If several places of the disk have one: that of
    // the first.
    std::string failing_key;
    std::string failure;
    // Commit markers that were acknowledged and given up, while they count (GivenUpMarkers); the key of one of them.
    std::uint64_t given_up = 0;
    std::string given_up_key;
    // As UnsentStatus::places, changes_elsewhere and places_left.
    std::vector<std::string> places;
    std::uint64_t changes_elsewhere = 0;
    std::uint64_t places_left = 0;

    friend bool operator==(const UnsentActivity&, const UnsentActivity&) = default;
};

struct MountStatus {
    // Most entries in `files` and `reads`, the largest ones, and in `unwritten`, the latest ones.
    static constexpr std::size_t kMostFiles = 50;

    std::string source;
    std::string mount_point;
    // MAJOR:MINOR of the mounted file system, in every mount namespace; empty once the daemon's own no longer shows it,
    // and for daemons of earlier versions.
    std::string device;
    std::string version;
    std::int64_t pid = 0;
    std::int64_t seconds_mounted = 0;
    bool draining = false;
    // Files open for writing, and how many of them are not saved.
    std::uint64_t files_open = 0;
    std::uint64_t files_unsaved = 0;
    // Since the mount was made: files that a program could not write, and files whose writer was killed.
    std::uint64_t files_failed = 0;
    std::uint64_t files_held_back = 0;
    std::uint64_t names_known = 0;
    // Failed files that were neither written again nor removed.
    std::uint64_t files_unwritten = 0;
    std::vector<UnwrittenFile> unwritten;
    std::vector<FileInFlight> files;
    std::vector<std::string> renames;
    // Names whose removal was acknowledged and is not made yet.
    std::uint64_t removals = 0;
    // Files that failed, and of which other mounts do not know yet.
    std::uint64_t failures_untold = 0;
    // Files read in the last seconds.
    std::uint64_t files_read = 0;
    std::vector<FileBeingRead> reads;
    // Bytes since the mount was made, and bytes a second over the last few seconds.
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
    // Memory taken from the system, whether used or not.
    std::uint64_t memory_resident = 0;
    // The last errors and warnings of the log, oldest first.
    std::vector<std::string> problems;

    // True if nothing that was reported to a program as written would be lost or is on this machine only, nothing is
    // half done, and no other mount would commit a marker over what failed here.
    [[nodiscard]] bool safe_to_stop() const {
        return files_unsaved == 0 && renames.empty() && removals == 0 && failures_untold == 0 && unsent.changes == 0 &&
               unsent.places_left == 0;
    }

    friend bool operator==(const MountStatus&, const MountStatus&) = default;
};

// What a mount has acknowledged by some time, for a wait until it is in the bucket.
class AcknowledgedByNow {
public:
    explicit AcknowledgedByNow(const MountStatus& status);

    // `status`: a later one, perhaps of another daemon. A daemon that has the same own place on the disk may number
    // changes from the start again: then this waits for what it has acknowledged by its first status. EIO if it does
    // not have a place that is waited for.
    [[nodiscard]] Result<bool> is_sent(const MountStatus& status);

private:
    std::int64_t pid_;
    // IDs of the mount's own place, first, and of others with something left. Empty for none, and for daemons that do
    // not report them.
    std::vector<std::string> places_;
    std::uint64_t last_;
    // Removals that were acknowledged and have no numbers yet: they get them once no removal is under way.
    bool has_removals_;
    bool was_sent_;
};

// Set the parts of a status that change.
void set_files(MountStatus& status, const fs::FileSystem& fs);
void set_store(MountStatus& status, const s3::S3Statistics& store);
void set_cache(MountStatus& status, const ReadStatistics& cache);
void set_disk(MountStatus& status, const DiskCache& disk, std::uint64_t files_to_keep, bool is_all);
void set_unsent(MountStatus& status, const UnsentStatus& unsent, std::uint64_t limit, WallTime now);
void set_memory(MountStatus& status, const PoolUsage& usage);

// The status for a person, in several lines.
[[nodiscard]] std::string status_text(const MountStatus& status);

}  // namespace ckptfs
