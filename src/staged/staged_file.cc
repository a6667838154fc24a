// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_file.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "staged/staged_file_impl.h"
#include "write/writer_group.h"

namespace ckptfs {

std::shared_ptr<FileWriter> make_staged_file(const StagedEnvironment& environment, std::string key,
                                             std::optional<CommittedObject> base, Streaming streaming,
                                             Overwrite overwrite) {
    return std::make_shared<StagedFile>(environment, std::move(key), std::move(base), streaming, overwrite);
}

StagedFile::StagedFile(StagedEnvironment environment, std::string key, std::optional<CommittedObject> base,
                       Streaming streaming, Overwrite overwrite)
    : environment_(std::move(environment)),
      reachable_size_(environment_.write.writers.get(environment_.write)->plan().reachable_size(kMaxObjectSize)),
      key_(std::move(key)),
      overwrite_(overwrite),
      dirty_(!base),
      may_stream_(streaming == Streaming::kWhileInOrder) {
    discard_staged();
    if (base) {
        base->key = key_;
        start_from(std::move(*base));
    }
}

StagedFile::~StagedFile() {
    for (const std::string& key : temporaries_) {
        environment_.write.store.remove(key, [key](const Status& status) {
            if (!status) {
                log_warning(
                    format("{}: a temporary object is left: {}", escaped(key), escaped(status.error().message)));
            }
        });
    }
}

// --- calls from the outside

void StagedFile::write(std::uint64_t offset, WriteData data, WriteDone done) {
    enqueue(PendingWrite{offset, std::move(data), std::move(done)});
}

void StagedFile::append(WriteData data, WriteDone done) {
    enqueue(PendingWrite{std::nullopt, std::move(data), std::move(done)});
}

void StagedFile::truncate(std::uint64_t size, Done done) {
    enqueue(PendingTruncate{size, std::move(done)});
}

void StagedFile::begin_anew() {
    const MutexLock lock(mutex_);
    overwrite_ = Overwrite::kAllowed;
    dirty_ = dirty_ || content_.size() == 0;
}

void StagedFile::commit(CommitReason reason, CommitDone done) {
    enqueue(PendingCommit{reason, std::move(done)});
}

void StagedFile::enqueue(Pending pending) {
    const auto keep = self();
    auto pointer = std::make_shared<Pending>(std::move(pending));
    MutexLock lock(mutex_);
    pending_.add(std::move(pointer), end_.failure(), outbox_);
    advance();
    deliver(lock);
}

void StagedFile::abort(Error why, Done done) {
    const auto keep = self();
    MutexLock lock(mutex_);
    stop(std::move(why));
    end_.when_ended(std::move(done));
    answer_aborts();
    deliver(lock);
}

bool StagedFile::is_being_published() const {
    return committing_ || pending_.have_commit();
}

bool StagedFile::move_to(std::string key) {
    const MutexLock lock(mutex_);
    if (!may_move()) {
        return false;
    }
    key_ = std::move(key);
    overwrite_ = Overwrite::kAllowed;
    return true;
}

bool StagedFile::move_on_to(std::string key) {
    const MutexLock lock(mutex_);
    // A hidden key says what its object is to become.
    if (!may_move() || hiding_at_ || !temporaries_.empty() ||
        (stream_ && !stream_->move_to(new_hidden_key(environment_.hidden, key), Overwrite::kAllowed))) {
        return false;
    }
    key_ = std::move(key);
    overwrite_ = Overwrite::kAllowed;
    return true;
}

void StagedFile::committed_moved(std::string key, CommittedObject copy) {
    const auto keep = self();
    MutexLock lock(mutex_);
    if ((stream_ || committing_ || !temporaries_.empty()) && !end_.failure()) {
        fail(renamed_under_way(key_, key));
    }
    key_ = std::move(key);
    // The bytes are the same.
    copy.key = key_;
    auto reader = std::make_shared<BaseReader>(environment_.read, key_, copy);
    base_ = Base{std::move(copy), std::move(reader)};
    deliver(lock);
}

void StagedFile::when_failed(std::function<void(const Error&)> told) {
    const MutexLock lock(mutex_);
    end_.when_failed(std::move(told));
}

void StagedFile::before_ending(Wait wait) {
    const MutexLock lock(mutex_);
    end_.before_ending(std::move(wait));
}

std::string StagedFile::key() const {
    const MutexLock lock(mutex_);
    return key_;
}

std::uint64_t StagedFile::size() const {
    const MutexLock lock(mutex_);
    return content_.size();
}

bool StagedFile::dirty() const {
    const MutexLock lock(mutex_);
    return !orphaned_ && (dirty_ || pending_.have_change());
}

bool StagedFile::pristine() const {
    const MutexLock lock(mutex_);
    return !touched_ && !base_;
}

std::optional<Error> StagedFile::failed() const {
    const MutexLock lock(mutex_);
    return !end_.failure() && stream_ ? stream_->failed() : end_.failure();
}

WriterProgress StagedFile::progress() const {
    const MutexLock lock(mutex_);
    WriterProgress progress;
    const std::shared_ptr<StreamWriter>& writer = committer_ ? committer_ : stream_;
    if (writer) {
        progress = writer->progress();
    }
    progress.size = content_.size();
    progress.bytes_acknowledged = bytes_acknowledged_;
    return progress;
}

std::vector<std::string> StagedFile::unanswered_commits() const {
    const MutexLock lock(mutex_);
    std::vector<std::string> ids = unanswered_;
    if (stream_) {
        // The stream reports its failure before the file knows.
        const std::vector<std::string> present = stream_->unanswered_commits();
        ids.insert(ids.end(), present.begin(), present.end());
    }
    return ids;
}

// --- the queue

void StagedFile::deliver(MutexLock& lock) {
    outbox_.deliver(lock);
}

void StagedFile::advance() {
    if (busy_ || end_.failure() || pending_.empty()) {
        return;
    }
    busy_ = true;
    outbox_.add([keep = self(), pending = pending_.take()] { keep->carry_out(pending); });
}

void StagedFile::next() {
    busy_ = false;
    answer_aborts();
    advance();
}

void StagedFile::carry_out(const PendingPointer& pending) {
    MutexLock lock(mutex_);
    if (end_.failure()) {
        Queue::refuse(pending, *end_.failure(), outbox_);
        next();
    } else {
        std::visit([&](auto& call) REQUIRES(mutex_) { carry_out(pending, call); }, *pending);
    }
    deliver(lock);
}

// --- changes

Status StagedFile::check_reach(std::uint64_t offset, std::uint64_t length, std::string_view what) const {
    if (offset <= reachable_size_ && length <= reachable_size_ - offset) {
        return {};
    }
    return failure(EFBIG, format("{} {}: byte {} is beyond the largest size this memory budget can upload, {} bytes; "
                                 "use a larger --max-memory",
                                 what, escaped(key_), offset + length, reachable_size_));
}

void StagedFile::carry_out(const PendingPointer& pending, PendingWrite& write) {
    const std::uint64_t offset = write.offset.value_or(content_.size());
    if (write.data.data.empty()) {
        answer<PendingWrite>(pending);
        return;
    }
    if (Status reached = check_reach(offset, write.data.data.size(), "write"); !reached) {
        fail(std::move(reached.error()));
        answer<PendingWrite>(pending);
        return;
    }
    touched_ = dirty_ = true;
    if (stream_) {
        write_through(pending, offset);
    } else {
        // A write that is not at the end will not be there either when the file has grown.
        may_stream_ = may_stream_ && (!content_.any_staged() || offset == last_end_);
        write_to_disk(pending, offset);
    }
}

void StagedFile::write_to_disk(const PendingPointer& pending, std::uint64_t offset) {
    outbox_.add([keep = self(), pending, offset, staged = staged_] {
        keep->environment_.write.staging.post([keep, pending, offset, staged] {
            const ByteSpan data = std::get<PendingWrite>(*pending).data.data;
            const Status status = staged->write(offset, data);
            MutexLock lock(keep->mutex_);
            if (!status && !keep->end_.failure() && keep->can_stream(offset)) {
                keep->last_end_ = offset;
                keep->start_stream(pending);
            } else {
                if (!status) {
                    keep->fail(status.error());
                }
                keep->written(pending, offset, data.size(), status);
            }
            keep->deliver(lock);
        });
    });
}

void StagedFile::written(const PendingPointer& pending, std::uint64_t offset, std::uint64_t length,
                         const Status& status) {
    if (status && !end_.failure()) {
        content_.write(offset, offset + length);
        bytes_acknowledged_ += length;
        last_end_ = stream_ ? std::max(last_end_, offset + length) : offset + length;
        if (!stream_ && should_stream(offset + length)) {
            outbox_.add([pending] { std::get<PendingWrite>(*pending).done({}); });
            start_stream(nullptr);
            return;
        }
    }
    answer<PendingWrite>(pending);
}

void StagedFile::carry_out(const PendingPointer& pending, PendingTruncate& truncate) {
    const std::uint64_t size = truncate.size;
    if (const auto failed = stream_ ? stream_->failed() : std::nullopt) {
        stop(*failed);
        answer<PendingTruncate>(pending);
        return;
    }
    if (size == content_.size()) {
        answer<PendingTruncate>(pending);
        return;
    }
    if (Status reached = check_reach(size, 0, "truncate"); !reached) {
        fail(std::move(reached.error()));
        answer<PendingTruncate>(pending);
        return;
    }
    if (stream_ && size > 0) {
        truncate_stream(pending, size);
        return;
    }
    touched_ = dirty_ = true;
    cuts_ += size < content_.size() ? 1 : 0;
    content_.truncate(size);
    if (size == 0) {
        end_writer(std::exchange(stream_, nullptr));
        discard_staged();
        answer<PendingTruncate>(pending);
        return;
    }
    outbox_.add([keep = self(), pending, size, staged = staged_] {
        keep->environment_.write.staging.post([keep, pending, size, staged] {
            staged->truncate(size);
            MutexLock lock(keep->mutex_);
            keep->answer<PendingTruncate>(pending);
            keep->deliver(lock);
        });
    });
}

void StagedFile::carry_out(const PendingPointer& /*pending*/, PendingCommit& commit) {
    const bool nothing_to_publish = !dirty_ || (saves_only_writes(commit.reason) && !touched_ && !base_);
    if (orphaned_) {
        outbox_.add([done = std::move(commit.done), why = *orphaned_] { done(failure(why)); });
        next();
        return;
    }
    commit_done_.push_back(std::move(commit.done));
    if (nothing_to_publish) {
        answer_commit();
        return;
    }
    for (CommitDone& done : pending_.take_commits()) {
        commit_done_.push_back(std::move(done));
    }
    committing_ = true;
    start_commit();
}

void StagedFile::carry_out(const PendingPointer& pending, PendingRead& /*read*/) {
    if (stream_) {
        leave_stream(pending);
        return;
    }
    outbox_.add([keep = self(), pending] {
        auto& read = std::get<PendingRead>(*pending);
        keep->read(read.offset, read.size, std::move(read.done));
    });
    next();
}

// --- the end

void StagedFile::fail(Error error) {
    end_.log(error);
    stop(std::move(error));
}

void StagedFile::stop(Error error) {
    if (end_.failure()) {
        return;
    }
    end_.fail(std::move(error));
    const Error& why = *end_.failure();
    pending_.refuse_all(why, outbox_);
    for (CommitDone& done : std::exchange(commit_done_, {})) {
        outbox_.add([done = std::move(done), why] { done(failure(why)); });
    }
    note_unanswered(stream_);
    note_unanswered(committer_);
    // At most one of them is being hidden.
    const std::optional<std::string> hidden = std::exchange(hiding_at_, std::nullopt);
    end_writer(std::exchange(stream_, nullptr), hidden);
    end_writer(std::exchange(committer_, nullptr), hidden);
    for (const std::string& key : std::exchange(temporaries_, {})) {
        remove_temporary(key);
    }
    discard_staged();
}

void StagedFile::stop_for(const std::shared_ptr<StreamWriter>& writer, Error error) {
    if (writer && writer->failed()) {
        stop(std::move(error));
    } else {
        fail(std::move(error));
    }
}

void StagedFile::end_writer(const std::shared_ptr<FileWriter>& writer, const std::optional<std::string>& hidden) {
    if (!writer) {
        return;
    }
    end_.begin();
    Error why = end_.failure().value_or(Error());
    why.message = end_.failure() ? why.message : key_ + " was started over";
    outbox_.add([keep = self(), writer, hidden, why = std::move(why)] {
        writer->abort(why, [keep, hidden](const Status& status) {
            if (hidden) {
                // The store has answered: the object is there now, or never will be.
                MutexLock lock(keep->mutex_);
                keep->remove_temporary(*hidden);
                keep->deliver(lock);
            }
            keep->ended(status);
        });
    });
}

void StagedFile::note_unanswered(const std::shared_ptr<StreamWriter>& writer) {
    if (writer) {
        std::vector<std::string> ids = writer->unanswered_commits();
        if (ids.empty() && committing_ && !writer->failed()) {
            // It may be published before it is told that the file was given up.
            ids.push_back(writer->next_commit());
        }
        unanswered_.insert(unanswered_.end(), ids.begin(), ids.end());
    }
}

void StagedFile::remove_temporary(const std::string& key) {
    end_.begin();
    auto removal = [keep = self(), key] {
        keep->environment_.write.store.remove(key, [keep, key](const Status& status) {
            if (!status) {
                log_warning(
                    format("{}: a temporary object is left: {}", escaped(key), escaped(status.error().message)));
            }
            keep->ended(status);
        });
    };
    if (end_.failure()) {
        end_.end_when_told(std::move(removal));
    } else {
        outbox_.add(std::move(removal));
    }
}

void StagedFile::ended(const Status& status) {
    MutexLock lock(mutex_);
    end_.ended(status);
    answer_aborts();
    if (commit_waits_) {
        answer_commit();
    }
    deliver(lock);
}

void StagedFile::answer_aborts() {
    if (!busy_) {
        end_.answer();
    }
}

}  // namespace ckptfs
