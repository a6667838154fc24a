// SPDX-License-Identifier: Apache-2.0
// The state of one staged file.
//
// Writes, truncations, commits, and reads that have to wait for one of them, queue up and are carried out in that
// order, one at a time (`busy_`); other reads go past the queue. As in FileWriterImpl, calls to the outside are put
// into the outbox and made without the mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/outbox.h"
#include "staged/base_reader.h"
#include "staged/content_feed.h"
#include "staged/staged_bytes.h"
#include "staged/staged_content.h"
#include "staged/staged_file.h"
#include "write/file_end.h"
#include "write/pending_calls.h"
#include "write/stream_writer.h"

namespace ckptfs {

class StagedFile final : public FileWriter {
public:
    StagedFile(StagedEnvironment environment, std::string key, std::optional<CommittedObject> base, Streaming streaming,
               Overwrite overwrite);
    ~StagedFile() override;
    StagedFile(const StagedFile&) = delete;
    StagedFile& operator=(const StagedFile&) = delete;

    void write(std::uint64_t offset, WriteData data, WriteDone done) override;
    void append(WriteData data, WriteDone done) override;
    void truncate(std::uint64_t size, Done done) override;
    void begin_anew() override;
    void commit(CommitReason reason, CommitDone done) override;
    void abort(Error why, Done done) override;
    void orphan(Error why, Done done) override;
    bool move_to(std::string key) override;
    bool move_on_to(std::string key) override;
    void committed_moved(std::string key, CommittedObject copy) override;
    void when_failed(std::function<void(const Error&)> told) override;
    void before_ending(Wait wait) override;
    [[nodiscard]] bool readable() const override { return true; }
    void read(std::uint64_t offset, std::size_t size, ReadDone done) override;

    [[nodiscard]] std::string key() const override;
    [[nodiscard]] std::uint64_t size() const override;
    [[nodiscard]] bool dirty() const override;
    [[nodiscard]] bool pristine() const override;
    [[nodiscard]] std::optional<Error> failed() const override;
    [[nodiscard]] WriterProgress progress() const override;
    [[nodiscard]] std::vector<std::string> unanswered_commits() const override;

private:
    struct PendingRead {
        std::uint64_t offset = 0;
        std::size_t size = 0;
        ReadDone done;
    };
    // The file's name is gone: what is under a hidden key is to be under an unseen one.
    struct PendingUnseen {
        Done done;
    };
    using Queue = PendingCalls<PendingWrite, PendingTruncate, PendingCommit, PendingRead, PendingUnseen>;
    using Pending = Queue::Call;
    using PendingPointer = Queue::Pointer;

    struct Base {
        CommittedObject object;
        std::shared_ptr<BaseReader> reader;
    };

    [[nodiscard]] std::shared_ptr<StagedFile> self() {
        return std::static_pointer_cast<StagedFile>(shared_from_this());
    }

    // --- staged_file.cc: the queue, and changes.
    void enqueue(Pending pending) EXCLUDES(mutex_);
    void advance() REQUIRES(mutex_);
    void carry_out(const PendingPointer& pending) EXCLUDES(mutex_);
    void carry_out(const PendingPointer& pending, PendingWrite& write) REQUIRES(mutex_);
    void carry_out(const PendingPointer& pending, PendingTruncate& truncate) REQUIRES(mutex_);
    void carry_out(const PendingPointer& pending, PendingCommit& commit) REQUIRES(mutex_);
    void carry_out(const PendingPointer& pending, PendingRead& read) REQUIRES(mutex_);
    void carry_out(const PendingPointer& pending, PendingUnseen& unseen) REQUIRES(mutex_);
    void write_through(const PendingPointer& pending, std::uint64_t offset) REQUIRES(mutex_);
    void write_to_disk(const PendingPointer& pending, std::uint64_t offset) REQUIRES(mutex_);
    void written(const PendingPointer& pending, std::uint64_t offset, std::uint64_t length, const Status& status)
        REQUIRES(mutex_);
    void truncate_stream(const PendingPointer& pending, std::uint64_t size) REQUIRES(mutex_);
    [[nodiscard]] bool is_being_published() const REQUIRES(mutex_);
    [[nodiscard]] bool may_move() const REQUIRES(mutex_) {
        return !end_.failure() && !orphaned_ && !is_being_published();
    }
    [[nodiscard]] Status check_reach(std::uint64_t offset, std::uint64_t length, std::string_view what) const
        REQUIRES(mutex_);
    // Goes on with the queue: the call that was being carried out has ended.
    void next() REQUIRES(mutex_);
    template <class Call>
    void answer(const PendingPointer& pending) REQUIRES(mutex_) {
        outbox_.add([pending, why = end_.failure()] {
            auto& call = std::get<Call>(*pending);
            call.done(why ? Status(failure(*why)) : Status());
        });
        next();
    }
    void fail(Error error) REQUIRES(mutex_);
    // As fail(), without a line in the log: the caller, or the code that found the error, has reported it.
    void stop(Error error) REQUIRES(mutex_);
    // fail() or stop(), for an error on the way through `writer`, which has logged those that it found itself.
    void stop_for(const std::shared_ptr<StreamWriter>& writer, Error error) REQUIRES(mutex_);
    // Aborts the writer, and removes the hidden object that it may be completing.
    void end_writer(const std::shared_ptr<FileWriter>& writer, const std::optional<std::string>& hidden = std::nullopt)
        REQUIRES(mutex_);
    // Notes the writer's unanswered_commits(), before it is given up for a failure.
    void note_unanswered(const std::shared_ptr<StreamWriter>& writer) REQUIRES(mutex_);
    void remove_temporary(const std::string& key) REQUIRES(mutex_);
    void ended(const Status& status) EXCLUDES(mutex_);
    void answer_aborts() REQUIRES(mutex_);
    void deliver(MutexLock& lock) REQUIRES(mutex_) RELEASE(lock);

    // --- staged_file_stream.cc: the way through a writer while bytes come in order.
    [[nodiscard]] bool may_stream() const REQUIRES(mutex_);
    [[nodiscard]] bool should_stream(std::uint64_t end) const REQUIRES(mutex_);
    // Whether a write at `offset` goes on in order.
    [[nodiscard]] bool can_stream(std::uint64_t offset) const REQUIRES(mutex_);
    // Begins to stream, then carries `pending` out once more, if there is one.
    void start_stream(const PendingPointer& pending) REQUIRES(mutex_);
    void stream_started(const PendingPointer& pending, const Status& status) EXCLUDES(mutex_);
    // The file fails with its stream, but learns of it only with the next call.
    void stream_failed(const FileWriter* stream, const Error& error) EXCLUDES(mutex_);
    // Completes the stream to a hidden object, then carries `pending` out once more.
    void leave_stream(const PendingPointer& pending) REQUIRES(mutex_);
    void stream_left(const PendingPointer& pending, Result<CommittedObject> object) EXCLUDES(mutex_);
    // The hidden object is in the store now, or this is the error.
    void hiding_ended(const Result<CommittedObject>& object) REQUIRES(mutex_);
    void copy_hidden_base(const PendingPointer& pending) REQUIRES(mutex_);
    void hidden_base_copied(const PendingPointer& pending, Result<CommittedObject> object) EXCLUDES(mutex_);
    // Answers once nothing that is to be removed is left.
    void answer_unseen(PendingUnseen& unseen) REQUIRES(mutex_);

    // --- staged_file_commits.cc
    // Writers fail before the file does: makes the file decide when the writer's upload is ended.
    void decide_end_of(StreamWriter& writer) REQUIRES(mutex_);
    void writer_ends(const FileWriter* writer, std::function<void()> end) EXCLUDES(mutex_);
    // A writer for the content, from `prefix` on: the bytes of the base before that are copied.
    [[nodiscard]] std::shared_ptr<StreamWriter> open_writer(const std::string& key, std::uint64_t prefix)
        REQUIRES(mutex_);
    [[nodiscard]] FeedSource source(std::vector<FileRange> kept) const REQUIRES(mutex_);
    void start_commit() REQUIRES(mutex_);
    void commit_stream() REQUIRES(mutex_);
    void commit_staged() REQUIRES(mutex_);
    void commit_whole() REQUIRES(mutex_);
    [[nodiscard]] bool commit_without_copies(const Error& error) REQUIRES(mutex_);
    void commit_around(Result<CommittedFrames> frames) EXCLUDES(mutex_);
    void send_staged(FeedSource from, std::uint64_t prefix) REQUIRES(mutex_);
    void published(Result<CommittedObject> object) EXCLUDES(mutex_);
    void start_from(CommittedObject object) REQUIRES(mutex_);
    void discard_staged() REQUIRES(mutex_);
    void answer_commit() REQUIRES(mutex_);

    // --- staged_file_reads.cc
    // `cuts`: the value of `cuts_` when the view was taken.
    void serve(ContentView view, std::uint64_t offset, std::uint64_t cuts, ReadDone done);
    [[nodiscard]] bool was_cut_since(std::uint64_t cuts) const EXCLUDES(mutex_);
    void read_base(const std::shared_ptr<BaseReader>& base, std::uint64_t offset, std::size_t size, ReadDone done);
    // A commit of this file may have replaced the base that was read: then what is there now is read, once the commit
    // has ended; else this fails.
    void read_again(const std::shared_ptr<BaseReader>& base, std::uint64_t offset, std::size_t size, const Error& why,
                    ReadDone done);

    const StagedEnvironment environment_;
    const std::uint64_t reachable_size_;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    std::string key_ GUARDED_BY(mutex_);
    Overwrite overwrite_ GUARDED_BY(mutex_);
    Queue pending_ GUARDED_BY(mutex_);
    bool busy_ GUARDED_BY(mutex_) = false;
    FileEnd end_ GUARDED_BY(mutex_){outbox_};
    // Why nothing is published any more, although the file can be changed and read.
    std::optional<Error> orphaned_ GUARDED_BY(mutex_);

    // What the file started from; its object's key says where it lies.
    std::optional<Base> base_ GUARDED_BY(mutex_);
    StagedContent content_ GUARDED_BY(mutex_);
    std::shared_ptr<StagedBytes> staged_ GUARDED_BY(mutex_);
    // How often the end of what is staged was cut off in place.
    std::uint64_t cuts_ GUARDED_BY(mutex_) = 0;
    bool touched_ GUARDED_BY(mutex_) = false;
    bool dirty_ GUARDED_BY(mutex_) = false;
    std::uint64_t bytes_acknowledged_ GUARDED_BY(mutex_) = 0;

    bool may_stream_ GUARDED_BY(mutex_);
    // Where the last write ended; while streaming, where the stream ends.
    std::uint64_t last_end_ GUARDED_BY(mutex_) = 0;
    // Present while streaming: what content_ calls staged is there.
    std::shared_ptr<StreamWriter> stream_ GUARDED_BY(mutex_);
    // The key under which the stream, or a copy of the hidden base, is being completed: an abort may come too late for
    // that.
    std::optional<std::string> hiding_at_ GUARDED_BY(mutex_);

    // A commit that is under way, and its waiters.
    bool committing_ GUARDED_BY(mutex_) = false;
    std::vector<CommitDone> commit_done_ GUARDED_BY(mutex_);
    std::shared_ptr<StreamWriter> committer_ GUARDED_BY(mutex_);
    // The unanswered_commits() of writers that are gone.
    std::vector<std::string> unanswered_ GUARDED_BY(mutex_);
    // The commit under way copies what lies between changes.
    bool keeps_runs_ GUARDED_BY(mutex_) = false;
    // The commit has been published; something has to be removed before it is answered.
    bool commit_waits_ GUARDED_BY(mutex_) = false;

    // Keys of objects that are known only here.
    std::vector<std::string> temporaries_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
