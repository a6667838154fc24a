// SPDX-License-Identifier: Apache-2.0
// The life of a mount's files: what they are made of, what is told of them, and how they end. What the kernel asks of
// them is in file_operations.h, which also says how replies, nodes and handles are owned.
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
#include "fs/commit_policy.h"
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
    // Not all of it is committed yet.
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
    // Of the upload or the object: the file's own, or a hidden one.
    std::string key;
    // Empty for an object, and for an upload of which only the time of the request is known.
    std::string upload;
    std::optional<WallTime> asked{};
    // An earlier version was sent then, which the bucket dates to that time, under this ETag of the bucket's: empty
    // where that is not known.
    WallTime earlier_sent{};
    std::string earlier_etag{};
};

// A local disk acknowledges what the mount does (--ack disk): for what is not to be left to that.
struct DiskAcknowledgement {
    // The bucket itself: only for names of which nothing is unsent.
    ObjectStore& bucket;
    // For checks of markers before they are sent: those that wait elsewhere may wait for them.
    Executor& blocking;
    // What this mount tells others of what is unsent begins so.
    std::string id;
    // Calls back once all that was acknowledged by now is in the bucket; ECANCELED where the mount ends before.
    std::function<void(std::function<void(Status)> sent)> when_sent;
    // For the end of the mount: what is not in the bucket, in a line; empty where all is.
    std::function<std::string()> left;
    // A version's ETag as this mount knows it, and as the bucket does: until the mount ends, that of the
    // acknowledgement stays that of its version here.
    std::function<std::string(const std::string& key, const std::string& etag)> etag_here;
    std::function<std::string(const std::string& key, const std::string& etag)> etag_there;
    // When this version was acknowledged by this mount's disk, if that is known: the bucket dates it to when it was
    // sent.
    std::function<std::optional<WallTime>(const ObjectInfo& object)> acknowledged_at;
    // kWriteIdMetadata of what is under this name, where that is not in the bucket yet; else empty.
    std::function<std::string(const std::string& key)> unsent_write_id;
};

// Who asks for what other mounts have not sent.
struct AskedBy {
    // The ID of its disk, which is not elsewhere; empty for none.
    std::string disk;
    // What began later does not matter.
    WallTime acknowledged = WallTime::max();
    // By their digests, what others have told before that, which alone matters; absent: all that they tell.
    std::optional<std::vector<std::uint64_t>> awaited{};
};

struct FileSystemEnvironment {
    // Acknowledges.
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
    // This machine, as others are told of it.
    std::string host{};
    FailureNotes failure_notes{};
    // Null: all is read by this process.
    Passthrough* passthrough = nullptr;
    // Null: the bucket acknowledges.
    const DiskAcknowledgement* acknowledging = nullptr;
    // Commit markers wait here for other mounts' files; null: on `blocking`, where they hold up changes of names.
    Executor* gate_threads = nullptr;

    [[nodiscard]] Executor& gate() const { return gate_threads == nullptr ? blocking : *gate_threads; }
    // For what other mounts see in steps, or what is asked of the store itself.
    [[nodiscard]] ObjectStore& bucket() const { return acknowledging == nullptr ? store : acknowledging->bucket; }
    // Of a version as this mount knows it, as others do.
    [[nodiscard]] std::string etag_there(const std::string& key, const std::string& etag) const {
        return acknowledging == nullptr ? etag : acknowledging->etag_there(key, etag);
    }
};

class FileSystem : public FileOperations {
public:
    static std::unique_ptr<FileSystem> create(FileSystemEnvironment environment);

    // After this, opens for writing answer ESHUTDOWN; what is being written goes on. The reply comes when no file is
    // dirty and no upload in flight.
    virtual void drain(Reply<void> reply) = 0;
    // The kernel will ask for nothing more, and may not have released everything: draining no longer waits for files
    // with nothing left to save. To be called again from time to time, because others get there later.
    virtual void disconnected() = 0;
    // The records of renames of a mount that was killed on this machine: they are finished or rolled back.
    virtual void end_renames(const std::vector<std::string>& record_keys) = 0;
    // To be called before what such a mount left of a file is removed, and that only on success: other mounts are
    // told that the file was not finished, unless it was written again since.
    virtual void record_unfinished(UnfinishedFile file, Reply<void> reply) = 0;
    // A file that failed on such a mount before others could be told, as it was noted: others are told, unless it was
    // written again since.
    virtual void recall_failure(const std::string& key, const std::string& record) = 0;
    // What other mounts than the one of this disk tell to be unsent below a marker's directory, for AskedBy: before the
    // marker is acknowledged by the disk.
    virtual void announced_by_others(const std::string& marker_key, const std::string& disk,
                                     Reply<std::vector<std::uint64_t>> reply) = 0;
    // Whether a commit marker that a disk has acknowledged may be sent to the bucket now. A failure is retryable where
    // that may change.
    virtual void may_mark(const std::string& marker_key, const AskedBy& by, Reply<void> reply) = 0;
    // What a disk has acknowledged will not be in the bucket as it was.
    virtual void change_lost(const std::string& key, const Error& why) = 0;
    virtual void change_made_good(const std::string& key) = 0;
    [[nodiscard]] virtual std::vector<UploadProgress> uploads() const = 0;
    [[nodiscard]] virtual std::vector<ReadProgress> reads() const = 0;
    [[nodiscard]] virtual FileStatistics statistics() const = 0;
    // Files that failed on this mount and were not made good, with the `most` latest of them.
    [[nodiscard]] virtual UnwrittenFiles unwritten(std::size_t most) const = 0;
    // Names with a rename under way.
    [[nodiscard]] virtual std::vector<std::string> renames() const = 0;
    // For the end of the drain timeout: gives up every file that is open for writing, and names those of which
    // something was not saved. `ended` comes when nothing of them is in flight and nothing left in the store, or could
    // not be removed from it.
    virtual std::vector<std::string> abandon(Reply<void> ended) = 0;
    // What the bucket does not say, although the mount's users were told, or other mounts should be: a line each. After
    // drain() or abandon().
    [[nodiscard]] virtual std::vector<std::string> left_undone() = 0;
};

}  // namespace ckptfs::fs
