// SPDX-License-Identifier: Apache-2.0
#include "staged/growing_file.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "staged/growing_file_impl.h"

namespace ckptfs {
namespace {

// If more than this was written since the last commit began, the file is streamed as any other file is.
constexpr std::uint64_t kStreamsFrom = std::uint64_t{32} << 20;
// While the store does not reply, this much is kept for it; then writes wait.
constexpr std::uint64_t kMostUnpublished = std::uint64_t{1} << 30;

}  // namespace

std::shared_ptr<FileWriter> make_growing_file(WriteEnvironment& environment, std::string key,
                                              std::optional<CommittedObject> base, Overwrite overwrite) {
    return std::make_shared<GrowingFile>(environment, std::move(key), std::move(base), overwrite);
}

GrowingFile::GrowingFile(WriteEnvironment& environment, std::string key, std::optional<CommittedObject> base,
                         Overwrite overwrite)
    : environment_(environment),
      group_(environment.writers.get(environment)),
      key_(std::move(key)),
      overwrite_(overwrite),
      committed_(std::move(base)),
      starts_over_(!committed_),
      dirty_(!committed_) {
    size_ = kept_ = committed_ ? committed_->size : 0;
    staged_ = std::make_shared<StagedBytes>(environment_.config.staging_dir, key_);
    staged_from_ = size_;
}

// --- calls from the outside

void GrowingFile::write(std::uint64_t offset, WriteData data, WriteDone done) {
    enqueue(PendingWrite{offset, std::move(data), std::move(done)});
}

void GrowingFile::append(WriteData data, WriteDone done) {
    enqueue(PendingWrite{std::nullopt, std::move(data), std::move(done)});
}

void GrowingFile::truncate(std::uint64_t size, Done done) {
    enqueue(PendingTruncate{size, std::move(done)});
}

void GrowingFile::begin_anew() {
    const MutexLock lock(mutex_);
    // Nothing of an empty version is kept: this only makes a difference to the check of what has the name.
    if (size_ == 0) {
        starts_over_ = true;
        starts_over_next_ = commit_ != nullptr;
        overwrite_ = Overwrite::kAllowed;
        dirty_ = true;
    }
}

void GrowingFile::commit(CommitReason reason, CommitDone done) {
    enqueue(PendingCommit{reason, std::move(done)});
}

void GrowingFile::enqueue(Pending pending) {
    const auto keep = self();
    auto pointer = std::make_shared<Pending>(std::move(pending));
    MutexLock lock(mutex_);
    pending_.add(std::move(pointer), end_.failure(), outbox_);
    deliver(lock);
}

void GrowingFile::abort(Error why, Done done) {
    const auto keep = self();
    MutexLock lock(mutex_);
    stop(std::move(why));
    end_.when_ended(std::move(done));
    deliver(lock);
}

bool GrowingFile::move_to(std::string key) {
    const MutexLock lock(mutex_);
    if (end_.failure() || committed_ || !failed_commits_.empty() || commit_ || stream_ || pending_.have_commit()) {
        return false;
    }
    key_ = std::move(key);
    overwrite_ = Overwrite::kAllowed;
    return true;
}

void GrowingFile::committed_moved(std::string key, CommittedObject copy) {
    const auto keep = self();
    MutexLock lock(mutex_);
    if ((stream_ || commit_) && !end_.failure()) {
        fail(renamed_under_way(key_, key));
    }
    key_ = std::move(key);
    // The bytes are the same.
    copy.size = committed_ ? committed_->size : copy.size;
    committed_ = std::move(copy);
    frames_.reset();
    failed_commits_.clear();
    deliver(lock);
}

void GrowingFile::when_failed(std::function<void(const Error&)> told) {
    const MutexLock lock(mutex_);
    end_.when_failed(std::move(told));
}

void GrowingFile::before_ending(Wait wait) {
    const MutexLock lock(mutex_);
    end_.before_ending(std::move(wait));
}

std::string GrowingFile::key() const {
    const MutexLock lock(mutex_);
    return key_;
}

std::uint64_t GrowingFile::size() const {
    const MutexLock lock(mutex_);
    return size_;
}

bool GrowingFile::dirty() const {
    const MutexLock lock(mutex_);
    return dirty_ || busy_ || pending_.have_change();
}

bool GrowingFile::pristine() const {
    const MutexLock lock(mutex_);
    return !touched_ && !committed_;
}

std::optional<Error> GrowingFile::failed() const {
    const MutexLock lock(mutex_);
    return end_.failure();
}

WriterProgress GrowingFile::progress() const {
    const MutexLock lock(mutex_);
    WriterProgress progress;
    if (const std::shared_ptr<StreamWriter>& writer = commit_ ? commit_->writer : stream_) {
        progress = writer->progress();
    } else {
        progress.bytes_in_store = kept_;
    }
    progress.size = size_;
    progress.bytes_acknowledged = bytes_acknowledged_;
    return progress;
}

bool GrowingFile::may_have_committed() const {
    const MutexLock lock(mutex_);
    return !failed_commits_.empty();
}

std::vector<std::string> GrowingFile::unanswered_commits() const {
    const MutexLock lock(mutex_);
    std::vector<std::string> ids = recognised_;
    for (const FailedCommit& commit : failed_commits_) {
        ids.push_back(commit.write_id);
    }
    return ids;
}

bool GrowingFile::lacks_part_copy() const {
    return environment_.store.lacks_part_copy(committed_->key.empty() ? key_ : committed_->key);
}

std::uint64_t GrowingFile::sent_again() const {
    const MutexLock lock(mutex_);
    if (!committed_ || kept_ == 0) {
        return 0;
    }
    if (committed_->stored_size < kMinPartSize || lacks_part_copy()) {
        return committed_->stored_size;
    }
    if (!frames_) {
        return 0;
    }
    const std::uint64_t copied = copied_until();
    const std::uint64_t stored = frames_->plain() ? copied : frames_->stored_offset(copied / kFrameSize);
    return committed_->stored_size - std::min(stored, committed_->stored_size);
}

// --- the queue

void GrowingFile::deliver(MutexLock& lock) {
    advance();
    outbox_.deliver(lock);
}

void GrowingFile::advance() {
    while (!end_.failure() && !busy_ && !pending_.empty() && step()) {
    }
    answer_aborts();
}

bool GrowingFile::step() {
    const PendingPointer pending = pending_.front();
    return std::visit([&](auto& call) REQUIRES(mutex_) { return step(pending, call); }, *pending);
}

// The front is being carried out.
void GrowingFile::take_front() {
    busy_ = true;
    pending_.take();
}

bool GrowingFile::step(const PendingPointer& /*pending*/, PendingCommit& commit) {
    const bool nothing_to_publish = !dirty_ || (saves_only_writes(commit.reason) && !touched_ && !committed_);
    if (nothing_to_publish && !commit_) {
        outbox_.add([done = std::move(commit.done), object = committed_.value_or(CommittedObject())] { done(object); });
    } else {
        waiting_.push_back(std::move(commit));
        start_commit();
    }
    pending_.take();
    return true;
}

// --- changes

std::uint64_t GrowingFile::unpublished() const {
    const std::uint64_t begun = commit_ ? commit_->unchanged : kept_;
    return size_ - std::min(begun, size_);
}

bool GrowingFile::should_stream(std::uint64_t end) const {
    const std::uint64_t more = end - std::min(end, size_);
    // What is to be sent again has to stay here.
    const std::uint64_t most = publish_failed_ ? kMostUnpublished : kStreamsFrom;
    return staging_is_full_ || more > kStreamsFrom || unpublished() + more > most;
}

bool GrowingFile::step(const PendingPointer& pending, PendingWrite& write) {
    const std::uint64_t length = write.data.data.size();
    if (length == 0) {
        answer<PendingWrite>(pending, {});
        pending_.take();
        return true;
    }
    const std::uint64_t offset = write.offset.value_or(size_);
    const std::uint64_t limit = group_->plan().reachable_size(size_);
    if (offset > limit || length > limit - offset) {
        fail(failure(EFBIG, format("write {}: byte {} is beyond the largest size this memory budget can upload, {} "
                                   "bytes; use a larger --max-memory",
                                   escaped(key_), offset + length, limit))
                 .value());
        return false;
    }
    const bool is_too_much = commit_ && unpublished() + length > kMostUnpublished;
    // Zeros are neither staged nor read: they go through a stream.
    const bool jumps = commit_ && offset > size_ + kStreamsFrom;
    if (offset < being_sent() || is_too_much || jumps) {
        return false;
    }
    if (stream_) {
        take_front();
        write_through(pending, offset);
    } else if (offset < staged_from_ || (!commit_ && should_stream(offset + length))) {
        if (!commit_) {
            start_stream();
        }
    } else if (!(commit_ && staging_is_full_)) {
        take_front();
        stage(pending, offset);
    }
    return false;
}

void GrowingFile::stage(const PendingPointer& pending, std::uint64_t offset) {
    outbox_.add([keep = self(), pending, offset, target = staged_] {
        keep->environment_.staging.post([keep, pending, offset, target] {
            const Status status = target->write(offset, std::get<PendingWrite>(*pending).data.data);
            MutexLock lock(keep->mutex_);
            keep->staged(pending, offset, status);
            keep->deliver(lock);
        });
    });
}

void GrowingFile::staged(const PendingPointer& pending, std::uint64_t offset, const Status& status) {
    busy_ = false;
    if (end_.failure()) {
        answer<PendingWrite>(pending, failure(*end_.failure()));
    } else if (!status) {
        // The write is streamed instead.
        staging_is_full_ = true;
        changed_from(offset);
        pending_.put_back(pending);
    } else {
        const std::uint64_t length = std::get<PendingWrite>(*pending).data.data.size();
        changed_from(offset);
        size_ = std::max(size_, offset + length);
        bytes_acknowledged_ += length;
        answer<PendingWrite>(pending, {});
    }
}

void GrowingFile::changed_from(std::uint64_t offset) {
    touched_ = dirty_ = true;
    kept_ = std::min(kept_, offset);
    for (FailedCommit& commit : failed_commits_) {
        commit.unchanged = std::min(commit.unchanged, offset);
    }
    if (commit_) {
        commit_->outdated = true;
        commit_->unchanged = std::min(commit_->unchanged, offset);
    }
}

bool GrowingFile::step(const PendingPointer& pending, PendingTruncate& truncate) {
    const std::uint64_t size = truncate.size;
    if (size > group_->plan().reachable_size(size)) {
        fail(
            failure(EFBIG, format("truncate {}: {} bytes are more than the largest size this memory budget can upload; "
                                  "use a larger --max-memory",
                                  escaped(key_), size))
                .value());
        return false;
    }
    // A cut to nothing does not wait: what is staged is left to the commit under way, and nothing of the file depends
    // on its end.
    const bool cuts_what_is_sent = size > 0 && size < being_sent();
    if (cuts_what_is_sent || (commit_ && size > size_ + kStreamsFrom)) {
        return false;
    }
    if (stream_) {
        take_front();
        truncate_through(pending, size);
        return false;
    }
    if (size > size_ + kStreamsFrom) {
        // Zeros are neither staged nor read.
        start_stream();
        return false;
    }
    if (size != size_) {
        cut(size);
    }
    answer<PendingTruncate>(pending, {});
    pending_.take();
    return true;
}

void GrowingFile::cut(std::uint64_t size) {
    changed_from(size);
    starts_over_ = starts_over_ || size == 0;
    size_ = size;
    if (commit_ && size == 0) {
        commit_->reads_until = 0;
        commit_->cut_to_nothing = true;
        // What that commit publishes does not matter either.
        starts_over_next_ = true;
    }
    for (FailedCommit& commit : failed_commits_) {
        commit.cut_to_nothing = commit.cut_to_nothing || size == 0;
    }
    if (size <= staged_from_) {
        discard_staged(size);
        return;
    }
    // Bytes after the cut read as zeros, even if the file grows again.
    busy_ = true;
    outbox_.add([keep = self(), size, target = staged_] {
        keep->environment_.staging.post([keep, size, target] {
            target->truncate(size);
            MutexLock lock(keep->mutex_);
            keep->busy_ = false;
            keep->deliver(lock);
        });
    });
}

void GrowingFile::discard_staged(std::uint64_t begin) {
    outbox_.add(
        [keep = std::exchange(staged_, std::make_shared<StagedBytes>(environment_.config.staging_dir, key_))] {});
    staged_from_ = begin;
    staging_is_full_ = false;
}

// --- the end

void GrowingFile::fail(Error error) {
    end_.log(error);
    stop(std::move(error));
}

void GrowingFile::stop(Error error) {
    if (end_.failure()) {
        return;
    }
    end_.fail(std::move(error));
    const Error& why = *end_.failure();
    pending_.refuse_all(why, outbox_);
    if (commit_) {
        if (commit_->writer) {
            note_failed(*commit_);
        }
        std::move(commit_->waiting.begin(), commit_->waiting.end(), std::back_inserter(waiting_));
        end_writer(commit_->writer, why);
        commit_.reset();
    }
    for (PendingCommit& commit : std::exchange(waiting_, {})) {
        outbox_.add([done = std::move(commit.done), why] { done(failure(why)); });
    }
    end_writer(std::exchange(stream_, nullptr), why);
    discard_staged(size_);
}

void GrowingFile::end_writer(const std::shared_ptr<FileWriter>& writer, Error why) {
    if (!writer) {
        return;
    }
    end_.begin();
    outbox_.add([keep = self(), writer, why = std::move(why)] {
        writer->when_failed(nullptr);
        writer->abort(why, [keep](const Status& status) { keep->ended(status); });
    });
}

void GrowingFile::ended(const Status& status) {
    MutexLock lock(mutex_);
    end_.ended(status);
    deliver(lock);
}

void GrowingFile::answer_aborts() {
    if (!busy_) {
        end_.answer();
    }
}

}  // namespace ckptfs
