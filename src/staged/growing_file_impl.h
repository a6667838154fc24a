// SPDX-License-Identifier: Apache-2.0
// The state of one growing file.
//
// Writes, truncations and commits queue up and are carried out in that order, one at a time (`busy_`). A commit whose
// turn has come waits in `waiting_` for the one under way (`commit_`), and calls after it in the queue do not: it
// covers what is there when it begins. As in FileWriterImpl, calls to the outside are put into the outbox and made
// without the mutex.
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
#include "staged/growing_file.h"
#include "staged/staged_bytes.h"
#include "staged/staged_content.h"
#include "write/file_end.h"
#include "write/pending_calls.h"
#include "write/stream_writer.h"
#include "write/writer_group.h"

namespace ckptfs {

class GrowingFile final : public FileWriter {
public:
    GrowingFile(WriteEnvironment& environment, std::string key, std::optional<CommittedObject> base,
                Overwrite overwrite);

    void write(std::uint64_t offset, WriteData data, WriteDone done) override;
    void append(WriteData data, WriteDone done) override;
    void truncate(std::uint64_t size, Done done) override;
    void begin_anew() override;
    void commit(CommitReason reason, CommitDone done) override;
    void abort(Error why, Done done) override;
    bool move_to(std::string key) override;
    void committed_moved(std::string key, CommittedObject copy) override;
    void when_failed(std::function<void(const Error&)> told) override;
    void before_ending(Wait wait) override;

    [[nodiscard]] std::string key() const override;
    [[nodiscard]] std::uint64_t size() const override;
    [[nodiscard]] bool dirty() const override;
    [[nodiscard]] bool pristine() const override;
    [[nodiscard]] std::optional<Error> failed() const override;
    [[nodiscard]] WriterProgress progress() const override;
    [[nodiscard]] bool may_have_committed() const override;
    [[nodiscard]] std::vector<std::string> unanswered_commits() const override;
    [[nodiscard]] std::uint64_t sent_again() const override;

private:
    using Queue = PendingCalls<PendingWrite, PendingTruncate, PendingCommit>;
    using Pending = Queue::Call;
    using PendingPointer = Queue::Pointer;

    // A commit under way.
    struct Commit {
        std::vector<PendingCommit> waiting;
        std::uint64_t size = 0;
        // Bytes from the beginning on that are as they were when the commit began.
        std::uint64_t unchanged = 0;
        // Bytes before this are not changed until the commit has ended; 0 once the file was cut to nothing: what is
        // staged since then is elsewhere.
        std::uint64_t reads_until = 0;
        // Null while the store is asked what is there, unless the commit was streamed.
        std::shared_ptr<StreamWriter> writer;
        // What the writer was given is nowhere else.
        bool streamed = false;
        // The store was asked what is there.
        bool has_asked = false;
        // Something was changed since the commit began.
        bool outdated = false;
        // The file was cut to nothing since.
        bool cut_to_nothing = false;
        // The commit has failed, the file has not, and the next commit sends all of it again.
        bool is_given_up = false;
    };
    using CommitPointer = std::shared_ptr<Commit>;

    // A commit that failed: whether it took effect may not be known.
    struct FailedCommit {
        std::string write_id;
        std::uint64_t size = 0;
        // Bytes from the beginning on that are still as they were.
        std::uint64_t unchanged = 0;
        bool cut_to_nothing = false;
    };

    // Bytes that a commit fetches, on their way to the staging file.
    struct Fetched {
        std::shared_ptr<StagedBytes> staged;
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        std::uint64_t staged_bytes = 0;
    };

    [[nodiscard]] std::shared_ptr<GrowingFile> self() {
        return std::static_pointer_cast<GrowingFile>(shared_from_this());
    }

    // --- growing_file.cc: the queue, and changes.
    void enqueue(Pending pending) EXCLUDES(mutex_);
    void advance() REQUIRES(mutex_);
    // One step; true when another may follow at once.
    [[nodiscard]] bool step() REQUIRES(mutex_);
    [[nodiscard]] bool step(const PendingPointer& pending, PendingWrite& write) REQUIRES(mutex_);
    [[nodiscard]] bool step(const PendingPointer& pending, PendingTruncate& truncate) REQUIRES(mutex_);
    [[nodiscard]] bool step(const PendingPointer& pending, PendingCommit& commit) REQUIRES(mutex_);
    [[nodiscard]] std::uint64_t unpublished() const REQUIRES(mutex_);
    // How far the commit under way may still read what is staged.
    [[nodiscard]] std::uint64_t being_sent() const REQUIRES(mutex_) { return commit_ ? commit_->reads_until : 0; }
    [[nodiscard]] bool should_stream(std::uint64_t end) const REQUIRES(mutex_);
    void take_front() REQUIRES(mutex_);
    void stage(const PendingPointer& pending, std::uint64_t offset) REQUIRES(mutex_);
    void staged(const PendingPointer& pending, std::uint64_t offset, const Status& status) REQUIRES(mutex_);
    // Bytes from `offset` on are no longer those that were committed.
    void changed_from(std::uint64_t offset) REQUIRES(mutex_);
    void cut(std::uint64_t size) REQUIRES(mutex_);
    template <class Call>
    void answer(const PendingPointer& pending, const Status& status) REQUIRES(mutex_) {
        outbox_.add([pending, status] { std::get<Call>(*pending).done(status); });
    }
    void fail(Error error) REQUIRES(mutex_);
    // As fail(), without a line in the log: the caller, or the code that found the error, has reported it.
    void stop(Error error) REQUIRES(mutex_);
    void end_writer(const std::shared_ptr<FileWriter>& writer, Error why) REQUIRES(mutex_);
    void ended(const Status& status) EXCLUDES(mutex_);
    void answer_aborts() REQUIRES(mutex_);
    void deliver(MutexLock& lock) REQUIRES(mutex_) RELEASE(lock);

    // --- growing_file_stream.cc
    void start_stream() REQUIRES(mutex_);
    void open_stream(const Status& checked) REQUIRES(mutex_);
    void stream_started(const Status& status) REQUIRES(mutex_);
    void write_through(const PendingPointer& pending, std::uint64_t offset) REQUIRES(mutex_);
    void truncate_through(const PendingPointer& pending, std::uint64_t size) REQUIRES(mutex_);

    // --- growing_file_commits.cc
    // ObjectStore::lacks_part_copy() for the committed object.
    [[nodiscard]] bool lacks_part_copy() const REQUIRES(mutex_);
    // How many bytes of the file the next commit copies within the store; 0 also if that is not known.
    [[nodiscard]] std::uint64_t copied_until() const REQUIRES(mutex_);
    // From this offset on the next commit sends what is staged: what lies before is copied, or fetched by its writer.
    [[nodiscard]] std::uint64_t prefix() const REQUIRES(mutex_);
    // The next commit replaces a version, and no request of it says which.
    [[nodiscard]] bool names_no_version() const REQUIRES(mutex_);
    // Checks that the version which a commit replaces is there, if the commit's own requests do not. `checked` runs
    // without the mutex.
    void check_base(Done checked) REQUIRES(mutex_);
    Status check_version(const Result<ObjectInfo>& object) REQUIRES(mutex_);
    // Notes that of the commits that failed, this one is in the bucket.
    void keep_recognised(std::string write_id) REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<StreamWriter> make_writer(std::uint64_t begin) REQUIRES(mutex_);
    void feed_staged(const std::shared_ptr<StreamWriter>& writer, ByteRun run, Done done) REQUIRES(mutex_);
    void start_commit() REQUIRES(mutex_);
    void check_then_send() REQUIRES(mutex_);
    // Makes the commit one of what is there now.
    void covers_all(Commit& commit) const REQUIRES(mutex_);
    void base_checked(const CommitPointer& commit, const Status& checked) REQUIRES(mutex_);
    void send(const CommitPointer& commit) REQUIRES(mutex_);
    void publish(const CommitPointer& commit) REQUIRES(mutex_);
    void succeeded(const Commit& commit, const CommittedObject& object) REQUIRES(mutex_);
    void failed(const CommitPointer& commit, const Error& error) REQUIRES(mutex_);
    void note_failed(const Commit& commit) REQUIRES(mutex_);
    void give_up(const CommitPointer& commit, const Error& error) REQUIRES(mutex_);
    void publish_later(const CommitPointer& commit, const Error& error) REQUIRES(mutex_);
    // Called before a failed writer ends its upload: it fails before the file does, if that fails, and the file decides
    // when the upload is ended.
    void writer_ends(const FileWriter* writer, std::function<void()> end) EXCLUDES(mutex_);
    void release_staged() REQUIRES(mutex_);
    void keep_fetched(StreamWriter& writer, std::uint64_t end) REQUIRES(mutex_);
    void kept_fetched(Fetched& fetched, std::uint64_t size, const Status& status) REQUIRES(mutex_);
    void discard_staged(std::uint64_t begin) REQUIRES(mutex_);

    WriteEnvironment& environment_;
    const std::shared_ptr<WriterGroup> group_;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    std::string key_ GUARDED_BY(mutex_);
    Overwrite overwrite_ GUARDED_BY(mutex_);
    Queue pending_ GUARDED_BY(mutex_);
    bool busy_ GUARDED_BY(mutex_) = false;
    FileEnd end_ GUARDED_BY(mutex_){outbox_};

    // What is in the bucket, its frames if they are known, and how many bytes of it are those of the file.
    std::optional<CommittedObject> committed_ GUARDED_BY(mutex_);
    std::optional<CommittedFrames> frames_ GUARDED_BY(mutex_);
    std::uint64_t kept_ GUARDED_BY(mutex_) = 0;
    // Nothing of what is in the bucket matters any more; nor will it when the commit under way has ended.
    bool starts_over_ GUARDED_BY(mutex_);
    bool starts_over_next_ GUARDED_BY(mutex_) = false;
    std::vector<FailedCommit> failed_commits_ GUARDED_BY(mutex_);
    // The write IDs of the commits that failed up to one that was found in the bucket, until a commit succeeds. If none
    // does, that object lacks what came since, and is not a file that was saved.
    std::vector<std::string> recognised_ GUARDED_BY(mutex_);
    // The latest commit has failed, whether or not anything of it was sent, and is tried again.
    bool publish_failed_ GUARDED_BY(mutex_) = false;

    std::uint64_t size_ GUARDED_BY(mutex_) = 0;
    // Bytes from here on are staged, except those that a stream was given.
    std::uint64_t staged_from_ GUARDED_BY(mutex_) = 0;
    std::shared_ptr<StagedBytes> staged_ GUARDED_BY(mutex_);
    bool staging_is_full_ GUARDED_BY(mutex_) = false;
    bool touched_ GUARDED_BY(mutex_) = false;
    bool dirty_ GUARDED_BY(mutex_);
    std::uint64_t bytes_acknowledged_ GUARDED_BY(mutex_) = 0;

    // Present while streaming: it has what the next commit publishes.
    std::shared_ptr<StreamWriter> stream_ GUARDED_BY(mutex_);

    CommitPointer commit_ GUARDED_BY(mutex_);
    std::vector<PendingCommit> waiting_ GUARDED_BY(mutex_);

    // Releases of staged bytes that are on their way to the disk.
    int releasing_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
