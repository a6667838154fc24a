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
    void commit(CommitReason reason, CommitDone done) override;
    void abort(Error why, Done done) override;
    void orphan(Error why, Done done) override;
    bool move_to(std::string key) override;
    void committed_moved(std::string key, CommittedObject copy) override;
    void when_failed(std::function<void(const Error&)> told) override;
    [[nodiscard]] bool readable() const override { return true; }
    void read(std::uint64_t offset, std::size_t size, ReadDone done) override;

    [[nodiscard]] std::string key() const override;
    [[nodiscard]] std::uint64_t size() const override;
    [[nodiscard]] bool dirty() const override;
    [[nodiscard]] bool pristine() const override;
    [[nodiscard]] std::optional<Error> failed() const override;
    [[nodiscard]] WriterProgress progress() const override;

private:
    struct PendingRead {
        std::uint64_t offset = 0;
        std::size_t size = 0;
        ReadDone done;
    };
    using Queue = PendingCalls<PendingWrite, PendingTruncate, PendingCommit, PendingRead>;
    using Pending = Queue::Call;
    using PendingPointer = Queue::Pointer;

    struct Base {
        CommittedObject object;
        std::shared_ptr<BaseReader> reader;
    };

    [[nodiscard]] std::shared_ptr<StagedFile> self() {
        return std::static_pointer_cast<StagedFile>(shared_from_this());
    }

    // --- staged_file.cc: the queue, and changes. All hold the mutex, but those that end a call or a completion.
    void enqueue(Pending pending);
    void advance();
    void carry_out(const PendingPointer& pending);
    void carry_out(const PendingPointer& pending, PendingWrite& write);
    void carry_out(const PendingPointer& pending, PendingTruncate& truncate);
    void carry_out(const PendingPointer& pending, PendingCommit& commit);
    void carry_out(const PendingPointer& pending, PendingRead& read);
    void write_through(const PendingPointer& pending, std::uint64_t offset);
    void write_to_disk(const PendingPointer& pending, std::uint64_t offset);
    void written(const PendingPointer& pending, std::uint64_t offset, std::uint64_t length, const Status& status);
    void truncate_stream(const PendingPointer& pending, std::uint64_t size);
    [[nodiscard]] bool is_being_published() const;
    [[nodiscard]] Status check_reach(std::uint64_t offset, std::uint64_t length, std::string_view what) const;
    // What is being carried out has ended.
    void next();
    template <class Call>
    void answer(const PendingPointer& pending) {
        outbox_.add([pending, why = failure_] {
            auto& call = std::get<Call>(*pending);
            call.done(why ? Status(failure(*why)) : Status());
        });
        next();
    }
    void fail(Error error);
    // Without a line in the log: the caller, or the code that found it out, has reported it.
    void stop(Error error);
    // For errors on the way through `writer`, which has reported those that it found itself.
    void stop_for(const std::shared_ptr<StreamWriter>& writer, Error error);
    void end_writer(const std::shared_ptr<FileWriter>& writer);
    void remove_temporary(const std::string& key);
    void ended(const Status& status);
    void answer_aborts();
    void deliver(MutexLock& lock) RELEASE(lock);

    // --- streaming.cc: the way through a writer while bytes come in order.
    [[nodiscard]] bool may_stream() const;
    [[nodiscard]] bool should_stream(std::uint64_t end) const;
    // Whether a write at `offset` goes on in order.
    [[nodiscard]] bool can_stream(std::uint64_t offset) const;
    // Then carries `pending` out once more, if there is one.
    void start_stream(const PendingPointer& pending);
    void stream_started(const PendingPointer& pending, const Status& status);
    // The file fails with its stream, but learns of it only with the next call.
    void stream_failed(const FileWriter* stream, const Error& error);
    // Then carries `pending` out once more.
    void leave_stream(const PendingPointer& pending);
    void stream_left(const PendingPointer& pending, Result<CommittedObject> object);

    // --- staged_commits.cc
    // For the content from the bytes of the base that are copied on.
    [[nodiscard]] std::shared_ptr<StreamWriter> open_writer(const std::string& key, std::uint64_t prefix);
    [[nodiscard]] FeedSource source(std::vector<FileRange> kept) const;
    void start_commit();
    void commit_stream();
    void commit_staged();
    void commit_whole();
    [[nodiscard]] bool commit_without_copies(const Error& error);
    void commit_around(Result<CommittedFrames> frames);
    void send_staged(FeedSource from, std::uint64_t prefix);
    void published(Result<CommittedObject> object);
    void start_from(CommittedObject object);
    void discard_staged();
    void answer_commit();

    // --- staged_reads.cc
    void serve(ContentView view, std::uint64_t offset, ReadDone done);
    void read_base(const std::shared_ptr<BaseReader>& base, std::uint64_t offset, std::size_t size, ReadDone done);

    const StagedEnvironment environment_;
    const std::uint64_t reachable_size_;

    mutable Mutex mutex_;
    Outbox outbox_;
    std::string key_;
    Overwrite overwrite_;
    Queue pending_;
    bool busy_ = false;
    std::optional<Error> failure_;
    // Why nothing is published any more, although the file can be changed and read.
    std::optional<Error> orphaned_;
    std::function<void(const Error&)> when_failed_;

    // What the file started from; its object's key says where it lies.
    std::optional<Base> base_;
    StagedContent content_;
    std::shared_ptr<StagedBytes> staged_;
    bool touched_ = false;
    bool dirty_ = false;
    std::uint64_t bytes_acknowledged_ = 0;

    bool may_stream_;
    // Where the last write ended; while streaming, the last in order.
    std::uint64_t last_end_ = 0;
    // Present while streaming: what content_ calls staged is there.
    std::shared_ptr<StreamWriter> stream_;

    // A commit that is under way, and its waiters.
    bool committing_ = false;
    std::vector<CommitDone> commit_done_;
    std::shared_ptr<StreamWriter> committer_;
    // It copies what lies between changes.
    bool keeps_runs_ = false;
    // It has been published; something has to be removed before that is told.
    bool commit_waits_ = false;

    // Keys of objects that are known only here.
    std::vector<std::string> temporaries_;
    // Requests that clean up, and their waiters.
    int ending_ = 0;
    Status ending_status_;
    std::vector<Done> aborted_;
};

}  // namespace ckptfs
