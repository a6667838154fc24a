// SPDX-License-Identifier: Apache-2.0
// One file being written: the state machine between write() and the bucket.
//
//   Empty -> Buffering -> Uploading -> Committing -> Committed (-> Buffering again after an fsync)
//   Failed(error) from anywhere; the first failure is kept and every later call returns it.
//
// The writer knows nothing of handles or processes: the filesystem decides when a commit is due and tells it.
// Until a commit nothing is visible under the key; a commit makes all of it visible at once. After a commit writing may
// go on; the next commit starts from the committed object (copied parts where they are 5 MiB or more, else its bytes
// are sent again). A commit with nothing new to publish succeeds without a request, except that closing a file that was
// created and never written publishes an empty object.
//
// Writes come in order. Also allowed are patches inside the first or the last part of the upload under way, and a jump
// forward, which is filled with zeros. Everything else fails the file with EOPNOTSUPP and one line naming key and
// offsets, and that file publishes nothing. Files that may be written anywhere are staged/staged_file.h's.
//
// Ownership: create() returns shared ownership; the writer keeps itself alive while requests are in flight. The
// destructor aborts, it never completes.
// Threads: all functions may be called from any thread; callbacks run without locks held, on any thread, each exactly
// once. Writes are acknowledged once they are charged to the write budget; a full budget delays the callback.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/codec.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "write/lazy_writer_group.h"
#include "write/publish_permits.h"

namespace ckptfs {

// Shared by all writers of a mount; outlives them.
struct WriteEnvironment {
    ObjectStore& store;
    BufferPool& pool;
    Executor& executor;
    // For tasks that wait for the disk.
    Executor& staging;
    Clock& clock;
    const Codec& codec;
    WriteConfig config;
    // How long the store tries a request without progress.
    Milliseconds retry_for = StoreConfig().retry_for;
    // What this node keeps of what is written; null: nothing.
    FileCache* files = nullptr;
    // Made by the first writer.
    LazyWriterGroup writers{};
    PublishPermits permits{clock, retry_for};
};

// The committed object that writing starts from (append, or a file opened without O_TRUNC).
struct CommittedObject {
    std::string etag;
    // Size of the object in the bucket.
    std::uint64_t stored_size = 0;
    // Size of the file.
    std::uint64_t size = 0;
    WallTime modified{};
    // The object's key; empty if that is the writer's own.
    std::string key{};
};

// What the first commit does if another client has made an object of its key: replaces it, or fails with EEXIST
// (O_EXCL).
enum class Overwrite : std::uint8_t { kAllowed, kRefused };

// kPublish: no process waits for the commit, and its failure need not be one of the file (FileWriter::commit).
// To the writer two are the same as kClose: kMade, for the close of a file that was made or truncated, and not written;
// kRelease, for what no close has committed when the last descriptor is gone.
enum class CommitReason : std::uint8_t { kClose, kFsync, kRename, kPublish, kMade, kRelease };

// Whether a commit for this reason leaves out a file that was created and never written to.
[[nodiscard]] constexpr bool saves_only_writes(CommitReason reason) {
    return reason == CommitReason::kFsync || reason == CommitReason::kPublish;
}

struct WriterProgress {
    std::uint64_t size = 0;
    std::uint64_t bytes_acknowledged = 0;
    std::uint64_t bytes_in_store = 0;
    int parts_in_flight = 0;
};

// The error that a file which cannot be written keeps. A refusal by the store (EACCES, EPERM) is EIO to the writer:
// Python's shutil.move() and fsspec treat EACCES as a mode that could not be set, and go on as if the file were whole.
Error kept_failure(Error error);

// The error of a file that is renamed while what its next commit publishes is being sent to the old name.
[[nodiscard]] Error renamed_under_way(const std::string& from, const std::string& to);

class FileWriter : public std::enable_shared_from_this<FileWriter> {
public:
    using WriteDone = std::function<void(Status)>;
    using CommitDone = std::function<void(Result<CommittedObject>)>;
    using Done = std::function<void(Status)>;
    using ReadDone = std::function<void(Result<Payload>)>;
    // Calls `then` once, now or later.
    using Wait = std::function<void(std::function<void()> then)>;

    // `base` is empty for a new or truncated file.
    static std::shared_ptr<FileWriter> create(WriteEnvironment& environment, std::string key,
                                              std::optional<CommittedObject> base,
                                              Overwrite overwrite = Overwrite::kAllowed);
    virtual ~FileWriter() = default;

    virtual void write(std::uint64_t offset, WriteData data, WriteDone done) = 0;
    // O_APPEND: at the end as the writer knows it.
    virtual void append(WriteData data, WriteDone done) = 0;
    // To a larger size, before the first write: a size hint, and zeros for what is never written. To zero: starts over.
    virtual void truncate(std::uint64_t size, Done done) = 0;
    // O_TRUNC has found the file empty: the next commit publishes it even if nothing was written since, and replaces
    // whatever has the name by then. A file that is no longer empty is left as it is.
    virtual void begin_anew() = 0;
    // Waits for the writes handed over before it; later ones may have to wait for the commit. CommitReason::kFsync
    // before the first write publishes nothing and returns an object without ETag. A commit that fails is the failure
    // of the file, except that after CommitReason::kPublish failed() says whether it is.
    virtual void commit(CommitReason reason, CommitDone done) = 0;
    // Ends the upload and keeps `why` for every later call; what was committed before stays. `done` is called when
    // nothing is left in the store.
    virtual void abort(Error why, Done done) = 0;
    // The file's name is gone, or another file's: nothing of it is published any more. If readable(), it can still be
    // changed and read, unless it is being published just now; else this is abort().
    virtual void orphan(Error why, Done done) { abort(std::move(why), std::move(done)); }
    // Only while no upload has begun and nothing is committed under the old key: later commits go to the new key, and
    // the old one is never written; what is under the new one is replaced. False otherwise.
    virtual bool move_to(std::string key) = 0;
    // As move_to(), for a file that no commit follows at once: also false if other mounts see by something in the store
    // that the file is missing under the old key.
    virtual bool move_on_to(std::string key) { return move_to(std::move(key)); }
    // The committed object was copied to another key (a rename of an open file without unpublished bytes): later
    // commits start from that copy and go to its key.
    virtual void committed_moved(std::string key, CommittedObject copy) = 0;

    // Called once the file fails or is aborted, before any caller gets that error, even if no caller waits for one; at
    // most once, and not from within this call. Replaces the callback set before.
    virtual void when_failed(std::function<void(const Error&)> told) = 0;
    // Called, after the callback of when_failed(), before anything that a failed file has in the store is ended or
    // removed: other mounts see by it that the file is missing, until they are told in another way. May be called more
    // than once; what ends while the file has not failed does not wait. Replaces the callback set before.
    virtual void before_ending(Wait wait) = 0;

    // Whether what was written can be read before it is committed.
    [[nodiscard]] virtual bool readable() const { return false; }
    // Only if readable(). At most BufferPool::kPayloadSize bytes; short only at the end of the file.
    virtual void read(std::uint64_t /*offset*/, std::size_t /*size*/, ReadDone done) {
        done(failure(EOPNOTSUPP, "what is being written cannot be read before it is closed or synced"));
    }

    [[nodiscard]] virtual std::string key() const = 0;
    // Bytes written so far, as stat shows them.
    [[nodiscard]] virtual std::uint64_t size() const = 0;
    // Something was written, truncated or created that no commit has published.
    [[nodiscard]] virtual bool dirty() const = 0;
    // The file has no bytes and never had any.
    [[nodiscard]] virtual bool pristine() const = 0;
    [[nodiscard]] virtual std::optional<Error> failed() const = 0;
    [[nodiscard]] virtual WriterProgress progress() const = 0;
    // A commit whose reply was lost may be in the bucket: the next commit finds out.
    [[nodiscard]] virtual bool may_have_committed() const { return false; }
    // For a file that has failed: write IDs (kWriteIdMetadata) of its commits whose replies were lost, or come too late
    // for any caller. Their objects may be in the bucket, or get there.
    [[nodiscard]] virtual std::vector<std::string> unanswered_commits() const = 0;
    // Bytes that are in the bucket and that the next commit sends once more; 0 if that is not known.
    [[nodiscard]] virtual std::uint64_t sent_again() const { return 0; }
};

}  // namespace ckptfs
