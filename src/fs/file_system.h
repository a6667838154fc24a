// SPDX-License-Identifier: Apache-2.0
// The life of a mount's files: how they are assembled, what is reported of them, and how they end. What the kernel asks
// of them is in file_operations.h, which also says how replies, nodes and handles are owned.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/processes.h"
#include "ckptfs/status.h"
#include "fs/failed_record.h"
#include "fs/failure_notes.h"
#include "fs/file_counters.h"
#include "fs/file_operations.h"
#include "fs/kernel_cache.h"
#include "fs/passthrough.h"
#include "read/file_reader.h"
#include "write/file_writer.h"

namespace ckptfs::fs {

struct UploadProgress {
    std::string key;
    WriterProgress progress;
    // Not all of the file is committed yet.
    bool unsaved = false;
    std::optional<Error> failed;
};

// A file that was read in the last seconds.
struct ReadProgress {
    std::string key;
    std::uint64_t size = 0;
    // Where the last read ended.
    std::uint64_t position = 0;
};

// What a mount that was killed has left of a file.
struct UnfinishedFile {
    // Key of the upload or the object: the file's own, or a hidden one.
    std::string key;
    // ID of the upload; empty for an object, and for an upload of which only the time of its request is known
    // (`asked`).
    std::string upload;
    std::optional<WallTime> asked{};
    // When an earlier version was sent, which is the bucket's date of it, and its ETag in the bucket, empty if that is
    // not known.
    WallTime earlier_sent{};
    std::string earlier_etag{};
};

// Access to the bucket behind a local disk that acknowledges this mount's changes (--ack disk): for what is not to be
// left to the disk.
struct DiskAcknowledgement {
    // The bucket itself: only for names that have nothing unsent.
    ObjectStore& bucket;
    // For checks of markers before they are sent: tasks that wait on the other executor may wait for these.
    Executor& blocking;
    // ID of the disk: names of this mount's announcements begin with it.
    std::string id;
    // Calls back once all that was acknowledged by now is in the bucket; ECANCELED if the mount ends before.
    std::function<void(std::function<void(Status)> sent)> when_sent;
    // For the end of the mount: what is not in the bucket, in one line; empty if everything is.
    std::function<std::string()> left;
    // A version's ETag as this mount knows it, and as the bucket does: until the mount ends, it knows the version by
    // the ETag under which the disk acknowledged it.
    std::function<std::string(const std::string& key, const std::string& etag)> etag_here;
    std::function<std::string(const std::string& key, const std::string& etag)> etag_there;
    // When this version was acknowledged by this mount's disk, if that is known: the bucket dates it to when it was
    // sent.
    std::function<std::optional<WallTime>(const ObjectInfo& object)> acknowledged_at;
    // kWriteIdMetadata of what is under this name, if that is not in the bucket yet; else empty.
    std::function<std::string(const std::string& key)> unsent_write_id;
};

// A question about what other mounts have not sent: who asks, and what counts.
struct AskedBy {
    // ID of the asking mount's disk, whose announcements do not count; empty if it has none.
    std::string disk;
    // Files that began later do not count.
    WallTime acknowledged = WallTime::max();
    // Digests of what others had announced before that: only this counts. Absent: all that they announce.
    std::optional<std::vector<std::uint64_t>> awaited{};
};

struct FileSystemEnvironment {
    // The store that acknowledges changes: the bucket, or a local disk in front of it.
    ObjectStore& store;
    // Namespace operations wait for the store here.
    Executor& blocking;
    Clock& clock;
    Timer& timer;
    ProcessInspector& processes;
    KernelCache& kernel_cache;
    const Codec& codec;
    WriteEnvironment& write;
    ReadEnvironment& read;
    NameConfig names;
    std::string prefix;
    // Name of this machine, for other mounts.
    std::string host{};
    FailureNotes failure_notes{};
    // Null: this process reads everything.
    Passthrough* passthrough = nullptr;
    // Null: the bucket acknowledges.
    const DiskAcknowledgement* acknowledging = nullptr;
    // Commit markers wait here for other mounts' files; null: on `blocking`, where they hold up changes of names.
    Executor* gate_threads = nullptr;

    [[nodiscard]] Executor& gate() const { return gate_threads == nullptr ? blocking : *gate_threads; }
    // The bucket itself: for changes that other mounts see in steps, and for questions to the store itself.
    [[nodiscard]] ObjectStore& bucket() const { return acknowledging == nullptr ? store : acknowledging->bucket; }
    // The bucket's ETag of a version that this mount knows under `etag`.
    [[nodiscard]] std::string etag_there(const std::string& key, const std::string& etag) const {
        return acknowledging == nullptr ? etag : acknowledging->etag_there(key, etag);
    }
};

class FileSystem : public FileOperations {
public:
    static std::unique_ptr<FileSystem> create(FileSystemEnvironment environment);

    // After this, opens for writing fail with ESHUTDOWN; what is being written goes on. The reply comes when no file is
    // dirty and no upload in flight, and removals, records of failures and what a disk has acknowledged are in the
    // bucket.
    virtual void drain(Reply<void> reply) = 0;
    // The kernel will send no more requests, and may not have released everything: drain() no longer waits for files
    // that have nothing left to save. To be called again from time to time, because other files reach that state later.
    virtual void disconnected() = 0;
    // Finishes or rolls back the renames of these records, whose mount was killed on this machine.
    virtual void end_renames(const std::vector<std::string>& record_keys) = 0;
    // Tells other mounts that a killed mount has not finished the file, unless it was written again since. To be called
    // before what that mount left of the file is removed, which only success allows.
    virtual void record_unfinished(UnfinishedFile file, Reply<void> reply) = 0;
    // Takes over a failure that a killed mount noted (FailureNotes) before it could tell other mounts: they are told,
    // unless the file was written again since.
    virtual void recall_failure(const std::string& key, const std::string& record) = 0;
    // Digests of what mounts other than that of `disk` announce as unsent below a marker's directory, for AskedBy:
    // asked before the disk acknowledges the marker.
    virtual void announced_by_others(const std::string& marker_key, const std::string& disk,
                                     Reply<std::vector<std::uint64_t>> reply) = 0;
    // Whether a commit marker that a disk has acknowledged may be sent to the bucket now. A failure is retryable if
    // that may change.
    virtual void may_mark(const std::string& marker_key, const AskedBy& by, Reply<void> reply) = 0;
    // What a disk has acknowledged of the key will not be in the bucket as it was.
    virtual void change_lost(const std::string& key, const Error& why) = 0;
    // The key of such a change was written again or removed.
    virtual void change_made_good(const std::string& key) = 0;
    [[nodiscard]] virtual std::vector<UploadProgress> uploads() const = 0;
    [[nodiscard]] virtual std::vector<ReadProgress> reads() const = 0;
    [[nodiscard]] virtual FileStatistics statistics() const = 0;
    // How many files failed on this mount and are unresolved, with the `most` latest of them.
    [[nodiscard]] virtual UnwrittenFiles unwritten(std::size_t most) const = 0;
    // Names with a rename under way.
    [[nodiscard]] virtual std::vector<std::string> renames() const = 0;
    // For the end of the drain timeout: gives up every file that is open for writing, and names those of which
    // something was not saved, and the renames and removals that are not finished. `ended` is called when nothing of
    // these files is in flight, and nothing of them is left in the store or it could not be removed.
    virtual std::vector<std::string> abandon(Reply<void> ended) = 0;
    // What the bucket does not say, although users of the mount were told so, or other mounts should be told: a line
    // each. To be called after drain() or abandon().
    [[nodiscard]] virtual std::vector<std::string> left_undone() = 0;
};

}  // namespace ckptfs::fs
