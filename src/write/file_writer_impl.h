// SPDX-License-Identifier: Apache-2.0
// The state of one FileWriter.
//
// Every call and every completion locks the mutex, changes the state, and lets advance() decide what follows; calls to
// the outside (pool, executor, store, callbacks) are put into the outbox and made without the mutex. Freed buffers wake
// waiters for memory, so they too are released in the outbox (discard()).
//
// Calls from the outside queue up (`pending_`) and are carried out in that order, one at a time. What leads to one
// commit is an UploadCycle, which is replaced when it ends (end_cycle()): what comes back to an earlier one is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/outbox.h"
#include "write/block_checksums.h"
#include "write/committed_frames.h"
#include "write/file_end.h"
#include "write/file_writer.h"
#include "write/kept_block.h"
#include "write/pending_calls.h"
#include "write/stream_writer.h"
#include "write/upload_cycle.h"
#include "write/writer_group.h"

namespace ckptfs {

class FileWriterImpl final : public StreamWriter, public MemoryHolder, public CycleOwner {
public:
    FileWriterImpl(WriteEnvironment& environment, std::string key, std::optional<CommittedObject> base,
                   Overwrite overwrite);
    FileWriterImpl(WriteEnvironment& environment, std::string key, CommittedObject base, KeptContent kept,
                   Overwrite overwrite);
    ~FileWriterImpl() override;
    FileWriterImpl(const FileWriterImpl&) = delete;
    FileWriterImpl& operator=(const FileWriterImpl&) = delete;

    void begin_writing(Done done) override;
    void write(std::uint64_t offset, WriteData data, WriteDone done) override;
    void write_in_order(std::uint64_t offset, WriteData data, WriteDone done, OutOfOrder out_of_order) override;
    void append(WriteData data, WriteDone done) override;
    void truncate(std::uint64_t size, Done done) override;
    void begin_anew() override;
    void commit(CommitReason reason, CommitDone done) override;
    void abort(Error why, Done done) override;
    bool move_to(std::string key) override { return move_to(std::move(key), Overwrite::kAllowed); }
    bool move_to(std::string key, Overwrite overwrite) override;
    void go_on_at(std::string key, Overwrite overwrite) override;
    void committed_moved(std::string key, CommittedObject copy) override;
    void when_fetched(std::function<void(std::uint64_t offset, Slice bytes)> told) override;
    [[nodiscard]] std::optional<CommittedFrames> committed_frames() const override;
    [[nodiscard]] std::string write_id() const override;
    [[nodiscard]] std::string next_commit() override;
    void when_failed(std::function<void(const Error&)> told) override;
    void before_ending(Wait wait) override;

    [[nodiscard]] std::string key() const override;
    [[nodiscard]] std::uint64_t size() const override;
    [[nodiscard]] bool dirty() const override;
    [[nodiscard]] bool pristine() const override;
    [[nodiscard]] std::optional<Error> failed() const override;
    [[nodiscard]] WriterProgress progress() const override;
    [[nodiscard]] std::vector<std::string> unanswered_commits() const override;

    [[nodiscard]] StuckMemory stuck_memory() const override;
    void relieve(Relief relief) override;

private:
    struct StreamWrite : PendingWrite {
        // Empty if being out of order fails the file.
        OutOfOrder out_of_order{};
        // `data.buffer` counts as file data.
        bool charged = false;
    };
    using Queue = PendingCalls<StreamWrite, PendingTruncate, PendingCommit, PendingBegin>;
    using Pending = Queue::Call;
    using PendingPointer = Queue::Pointer;

    [[nodiscard]] std::shared_ptr<FileWriterImpl> self() {
        return std::static_pointer_cast<FileWriterImpl>(shared_from_this());
    }

    // Whether a completion still matters: its cycle has not ended, by a failure either. The weak pointer is compared,
    // not locked, because the last owner of a cycle frees its memory.
    [[nodiscard]] bool is_current(const WeakCycle& cycle) const REQUIRES(mutex_) {
        return !cycle.owner_before(cycle_) && !cycle_.owner_before(cycle);
    }

    // --- file_writer.cc: the queue and the stream.
    void enqueue(Pending pending) EXCLUDES(mutex_);
    void give_back(const PendingPointer& pending) REQUIRES(mutex_);
    void advance() REQUIRES(mutex_);
    // One step; true when another may follow at once.
    [[nodiscard]] bool step() REQUIRES(mutex_);
    [[nodiscard]] bool begin_step(const PendingPointer& pending) REQUIRES(mutex_);
    [[nodiscard]] bool write_step(const PendingPointer& pending) REQUIRES(mutex_);
    [[nodiscard]] bool truncate_step(const PendingPointer& pending) REQUIRES(mutex_);
    void prefer_next_in_order() REQUIRES(mutex_);
    // The bytes of the write, charged as file data; empty while they wait for that.
    [[nodiscard]] std::optional<Slice> charge(const PendingPointer& pending) REQUIRES(mutex_);
    void wait_to_be_charged(const PendingPointer& pending) REQUIRES(mutex_);
    void charged(const PendingPointer& pending, Buffer buffer) EXCLUDES(mutex_);
    void accept(Slice slice) REQUIRES(mutex_);
    // Moves the stream one step towards `end`, over bytes that are not written; true when another step may follow.
    [[nodiscard]] bool pass_to(std::uint64_t end) REQUIRES(mutex_);
    // Keeps and logs the first failure of the file.
    void fail(Error error) override REQUIRES(mutex_);
    // As fail(), without a line in the log: the caller has reported the error.
    void stop(Error error) REQUIRES(mutex_);
    void deliver(MutexLock& lock) REQUIRES(mutex_) RELEASE(lock);
    template <class T>
    void discard(T garbage) REQUIRES(mutex_) {
        outbox_.add([keep = std::make_shared<T>(std::move(garbage))] {});
    }

    // --- file_writer_base.cc: what a commit starts from.
    // True when the stream begins to take bytes; false while the committed object's last bytes are being fetched.
    [[nodiscard]] bool cycle_ready() REQUIRES(mutex_);
    [[nodiscard]] bool committed_is_known() REQUIRES(mutex_);
    [[nodiscard]] const std::string& committed_key() const REQUIRES(mutex_) {
        return committed_->key.empty() ? key_ : committed_->key;
    }
    // The committed object was copied to another key since it was requested by this one.
    [[nodiscard]] bool has_moved(const std::string& key) const REQUIRES(mutex_) { return key != committed_key(); }
    void know_committed(const std::string& key, Result<CommittedFrames> frames) REQUIRES(mutex_);
    [[nodiscard]] bool copies_are_known() REQUIRES(mutex_);
    [[nodiscard]] bool sends_all_again() const REQUIRES(mutex_);
    [[nodiscard]] bool committed_is_checked(bool sends_all) REQUIRES(mutex_);
    void committed_checked(const std::string& key, Result<std::shared_ptr<const BlockChecksums>> checksums)
        REQUIRES(mutex_);
    void begin_cycle(bool sends_all) REQUIRES(mutex_);
    void fetch_block() REQUIRES(mutex_);
    [[nodiscard]] std::optional<KeptBlock::Place> committed_place(const WeakCycle& cycle) const EXCLUDES(mutex_);
    void block_here(KeptBlock& block, const Status& status) REQUIRES(mutex_);

    // Both are about runs that are kept after the beginning. next_run(): the first one at `from` or after it; null if
    // none is left.
    [[nodiscard]] const FileRange* next_run(std::uint64_t from) const REQUIRES(mutex_);
    [[nodiscard]] bool keep_run(const FileRange& run) REQUIRES(mutex_);

    // --- file_writer_commits.cc: commits, and the cycle that leads to each.
    void commit_requested(PendingCommit commit) REQUIRES(mutex_);
    [[nodiscard]] bool commit_step() REQUIRES(mutex_);
    const std::string& next_write_id() REQUIRES(mutex_);
    // The request that publishes may be on its way.
    [[nodiscard]] bool is_being_published() const REQUIRES(mutex_) {
        return cycle_->is_committing() && cycle_->is_publishing();
    }
    void published(Result<PutResponse> result) override REQUIRES(mutex_);
    [[nodiscard]] bool cut(std::uint64_t size) REQUIRES(mutex_);
    void start_over() REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<UploadCycle> new_cycle() REQUIRES(mutex_);
    void end_cycle() REQUIRES(mutex_);

    [[nodiscard]] std::shared_ptr<CycleOwner> kept_owner() override { return self(); }
    [[nodiscard]] Outbox& outbox() override REQUIRES(mutex_) { return outbox_; }
    [[nodiscard]] std::string shown_key() const override REQUIRES(mutex_);
    [[nodiscard]] Error about_this_file(Error error) const override REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<Upload> new_upload(Metadata metadata, std::string content_encoding) override
        REQUIRES(mutex_);
    void end_upload(std::shared_ptr<Upload> upload) override REQUIRES(mutex_);
    void upload_ended(const Status& status) EXCLUDES(mutex_);
    [[nodiscard]] CopySource committed_source() const override REQUIRES(mutex_);
    bool resume(const WeakCycle& cycle, const std::function<void(UploadCycle&)>& change) override EXCLUDES(mutex_);

    WriteEnvironment& environment_;
    const std::shared_ptr<WriterGroup> group_;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    std::string key_ GUARDED_BY(mutex_);
    Overwrite overwrite_ GUARDED_BY(mutex_);
    Queue pending_ GUARDED_BY(mutex_);
    // The front of the queue waits for memory.
    bool charging_ GUARDED_BY(mutex_) = false;
    FileEnd end_ GUARDED_BY(mutex_){outbox_};
    std::function<void(std::uint64_t offset, Slice bytes)> when_fetched_ GUARDED_BY(mutex_);

    // What is in the bucket, and how much of it the next commit keeps.
    std::optional<CommittedObject> committed_ GUARDED_BY(mutex_);
    std::uint64_t kept_size_ GUARDED_BY(mutex_) = 0;
    // How the frames of the committed object lie in it; null until that is known.
    std::shared_ptr<const CommittedFrames> committed_frames_ GUARDED_BY(mutex_);
    // Checksums of what is fetched to be sent again; null if nothing of a plain object is.
    std::shared_ptr<const BlockChecksums> checked_ GUARDED_BY(mutex_);
    // Runs of the committed object that are kept after kept_size_.
    std::vector<FileRange> kept_runs_ GUARDED_BY(mutex_);

    std::uint64_t size_ GUARDED_BY(mutex_) = 0;
    bool touched_ GUARDED_BY(mutex_) = false;
    bool dirty_ GUARDED_BY(mutex_) = false;
    std::uint64_t bytes_acknowledged_ GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_committed_ GUARDED_BY(mutex_) = 0;

    // Whether it is known if the store copies parts.
    bool copies_known_ GUARDED_BY(mutex_) = false;
    // The way to the next commit; never null.
    std::shared_ptr<UploadCycle> cycle_ GUARDED_BY(mutex_);
    // Of the commit that comes; empty before anything leads to one. `is_write_id_used_`: an upload has it.
    std::string write_id_ GUARDED_BY(mutex_);
    bool is_write_id_used_ GUARDED_BY(mutex_) = false;
    // The file has failed, and that upload may be in the bucket, or get there.
    bool may_be_published_ GUARDED_BY(mutex_) = false;
    // Waiters of the commit under way.
    std::vector<CommitDone> commit_done_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
