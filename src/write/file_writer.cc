// SPDX-License-Identifier: Apache-2.0
#include "write/file_writer.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/zeros.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "write/file_writer_impl.h"

namespace ckptfs {
namespace {

// Zeros take no memory, so something else has to bound how many of them are under way.
constexpr std::uint64_t kZeroFramesUnderWay = 32;
constexpr int kZeroPartsUnderWay = 16;

}  // namespace

Error kept_failure(Error error) {
    if (error.errno_value == EACCES || error.errno_value == EPERM) {
        error.errno_value = EIO;
    }
    return error;
}

Error renamed_under_way(const std::string& from, const std::string& to) {
    return failure(EIO, format("{}: renamed to {} while bytes written meanwhile were on their way to the old name; "
                               "write the file anew",
                               escaped(from), escaped(to)))
        .value();
}

std::shared_ptr<FileWriter> FileWriter::create(WriteEnvironment& environment, std::string key,
                                               std::optional<CommittedObject> base, Overwrite overwrite) {
    return StreamWriter::create(environment, std::move(key), std::move(base), overwrite);
}

std::shared_ptr<StreamWriter> StreamWriter::create(WriteEnvironment& environment, std::string key,
                                                   std::optional<CommittedObject> base, Overwrite overwrite) {
    return std::make_shared<FileWriterImpl>(environment, std::move(key), std::move(base), overwrite);
}

std::shared_ptr<StreamWriter> StreamWriter::create(WriteEnvironment& environment, std::string key, CommittedObject base,
                                                   KeptContent kept, Overwrite overwrite) {
    return std::make_shared<FileWriterImpl>(environment, std::move(key), std::move(base), std::move(kept), overwrite);
}

FileWriterImpl::FileWriterImpl(WriteEnvironment& environment, std::string key, std::optional<CommittedObject> base,
                               Overwrite overwrite)
    : environment_(environment),
      group_(environment.writers.get(environment)),
      key_(std::move(key)),
      overwrite_(overwrite),
      committed_(std::move(base)),
      cycle_(new_cycle()) {
    if (committed_) {
        size_ = kept_size_ = committed_->size;
        dirty_ = committed_key() != key_;
    } else {
        dirty_ = true;
    }
}

FileWriterImpl::FileWriterImpl(WriteEnvironment& environment, std::string key, CommittedObject base, KeptContent kept,
                               Overwrite overwrite)
    : FileWriterImpl(environment, std::move(key), std::move(base), overwrite) {
    size_ = kept_size_ = kept.prefix;
    committed_frames_ = std::make_shared<const CommittedFrames>(std::move(kept.frames));
    kept_runs_ = std::move(kept.runs);
    touched_ = dirty_ = true;
}

FileWriterImpl::~FileWriterImpl() {
    group_->leave(this);
}

// --- calls from the outside

void FileWriterImpl::begin_writing(Done done) {
    enqueue(PendingBegin{std::move(done)});
}

void FileWriterImpl::write(std::uint64_t offset, WriteData data, WriteDone done) {
    enqueue(StreamWrite{{offset, std::move(data), std::move(done)}});
}

void FileWriterImpl::write_in_order(std::uint64_t offset, WriteData data, WriteDone done, OutOfOrder out_of_order) {
    enqueue(StreamWrite{{offset, std::move(data), std::move(done)}, std::move(out_of_order)});
}

void FileWriterImpl::append(WriteData data, WriteDone done) {
    enqueue(StreamWrite{{std::nullopt, std::move(data), std::move(done)}});
}

void FileWriterImpl::truncate(std::uint64_t size, Done done) {
    enqueue(PendingTruncate{size, std::move(done)});
}

void FileWriterImpl::commit(CommitReason reason, CommitDone done) {
    enqueue(PendingCommit{reason, std::move(done)});
}

void FileWriterImpl::enqueue(Pending pending) {
    const auto keep = self();
    auto pointer = std::make_shared<Pending>(std::move(pending));
    MutexLock lock(mutex_);
    pending_.add(std::move(pointer), end_.failure(), outbox_);
    deliver(lock);
}

void FileWriterImpl::abort(Error why, Done done) {
    const auto keep = self();
    MutexLock lock(mutex_);
    stop(std::move(why));
    if (end_.is_under_way()) {
        end_.when_ended(std::move(done));
    } else {
        outbox_.add([done = std::move(done)] { done(Status()); });
    }
    deliver(lock);
}

void FileWriterImpl::begin_anew() {
    const MutexLock lock(mutex_);
    overwrite_ = Overwrite::kAllowed;
    dirty_ = dirty_ || size_ == 0;
}

bool FileWriterImpl::move_to(std::string key, Overwrite overwrite) {
    const MutexLock lock(mutex_);
    if (end_.failure() || (committed_ && committed_->key.empty()) || cycle_->upload() || cycle_->is_committing() ||
        pending_.have_commit()) {
        return false;
    }
    key_ = std::move(key);
    overwrite_ = overwrite;
    return true;
}

void FileWriterImpl::go_on_at(std::string key, Overwrite overwrite) {
    const MutexLock lock(mutex_);
    if (committed_ && !cycle_->upload() && key != key_) {
        committed_->key = committed_key();
        key_ = std::move(key);
        overwrite_ = overwrite;
        dirty_ = true;
    }
}

void FileWriterImpl::committed_moved(std::string key, CommittedObject copy) {
    const auto keep = self();
    MutexLock lock(mutex_);
    // Copies that were planned from the old key are not made from one that cannot be trusted as their source.
    const bool loses_copies =
        cycle_->begun() && kept_size_ >= kMinPartSize && environment_.store.lacks_part_copy(key) && !sends_all_again();
    if ((cycle_->upload() || loses_copies) && !end_.failure()) {
        fail(renamed_under_way(key_, key));
    }
    key_ = std::move(key);
    if (cycle_->begun()) {
        // The stream goes on from the copy as it was planned: its bytes are the same.
        copy.size = committed_ ? committed_->size : copy.size;
    } else {
        committed_frames_.reset();
        kept_runs_.clear();
    }
    committed_ = std::move(copy);
    deliver(lock);
}

void FileWriterImpl::when_failed(std::function<void(const Error&)> told) {
    const MutexLock lock(mutex_);
    end_.when_failed(std::move(told));
}

void FileWriterImpl::before_ending(Wait wait) {
    const MutexLock lock(mutex_);
    end_.before_ending(std::move(wait));
}

void FileWriterImpl::when_fetched(std::function<void(std::uint64_t offset, Slice bytes)> told) {
    const MutexLock lock(mutex_);
    when_fetched_ = std::move(told);
}

std::optional<CommittedFrames> FileWriterImpl::committed_frames() const {
    const MutexLock lock(mutex_);
    return committed_frames_ ? std::optional(*committed_frames_) : std::nullopt;
}

std::string FileWriterImpl::write_id() const {
    const MutexLock lock(mutex_);
    return is_write_id_used_ ? write_id_ : std::string();
}

std::string FileWriterImpl::next_commit() {
    const MutexLock lock(mutex_);
    return next_write_id();
}

std::vector<std::string> FileWriterImpl::unanswered_commits() const {
    const MutexLock lock(mutex_);
    const bool is_one = end_.failure() ? may_be_published_ : is_being_published();
    return is_one ? std::vector<std::string>{write_id_} : std::vector<std::string>();
}

std::string FileWriterImpl::key() const {
    const MutexLock lock(mutex_);
    return key_;
}

std::uint64_t FileWriterImpl::size() const {
    const MutexLock lock(mutex_);
    return size_;
}

bool FileWriterImpl::dirty() const {
    const MutexLock lock(mutex_);
    return dirty_ || pending_.have_change();
}

bool FileWriterImpl::pristine() const {
    const MutexLock lock(mutex_);
    return !touched_ && !committed_;
}

std::optional<Error> FileWriterImpl::failed() const {
    const MutexLock lock(mutex_);
    return end_.failure();
}

WriterProgress FileWriterImpl::progress() const {
    const MutexLock lock(mutex_);
    WriterProgress progress;
    progress.size = size_;
    progress.bytes_acknowledged = bytes_acknowledged_;
    progress.bytes_in_store = bytes_committed_;
    if (const std::shared_ptr<Upload>& upload = cycle_->upload()) {
        progress.bytes_in_store += upload->bytes_in_store();
        progress.parts_in_flight = upload->requests_in_flight();
    }
    return progress;
}

// --- the queue

void FileWriterImpl::deliver(MutexLock& lock) {
    advance();
    outbox_.deliver(lock);
}

void FileWriterImpl::advance() {
    while (!end_.failure() && step()) {
    }
    cycle_->release_discarded();
}

bool FileWriterImpl::step() {
    if (cycle_->is_committing()) {
        return commit_step();
    }
    if (pending_.empty() || charging_) {
        return false;
    }
    prefer_next_in_order();
    const PendingPointer pending = pending_.front();
    if (std::holds_alternative<StreamWrite>(*pending)) {
        return write_step(pending);
    }
    if (std::holds_alternative<PendingTruncate>(*pending)) {
        return truncate_step(pending);
    }
    if (std::holds_alternative<PendingBegin>(*pending)) {
        return begin_step(pending);
    }
    pending_.take();
    commit_requested(std::move(std::get<PendingCommit>(*pending)));
    return true;
}

void FileWriterImpl::prefer_next_in_order() {
    const auto* front = std::get_if<StreamWrite>(pending_.front().get());
    const std::uint64_t end = cycle_->begun() ? cycle_->end() : kept_size_;
    if (front == nullptr || front->charged || !front->offset || *front->offset <= end) {
        return;
    }
    // Threads that write consecutive ranges may hand them over swapped.
    pending_.prefer<StreamWrite>([end](const StreamWrite& write) { return write.offset == end; });
}

bool FileWriterImpl::begin_step(const PendingPointer& pending) {
    if (!cycle_ready()) {
        return false;
    }
    outbox_.add([pending] { std::get<PendingBegin>(*pending).done(Status()); });
    pending_.take();
    return true;
}

bool FileWriterImpl::write_step(const PendingPointer& pending) {
    auto& write = std::get<StreamWrite>(*pending);
    const std::uint64_t length = write.data.data.size();
    if (length > 0) {
        touched_ = true;
        if (!cycle_ready()) {
            return false;
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
        const std::uint64_t end = cycle_->end();
        if (offset > end) {
            return pass_to(offset);
        }
        if (offset < end) {
            if (cycle_->frames_under_way() > 0) {
                return false;
            }
            if (!cycle_->patchable(offset, offset + length)) {
                if (write.out_of_order) {
                    give_back(pending);
                    return true;
                }
                fail(cycle_->out_of_order(offset, length, size_));
                return false;
            }
        }
        if (cycle_->parts_under_way() >= environment_.config.max_parts_in_flight) {
            return false;
        }
        std::optional<Slice> slice = charge(pending);
        if (!slice) {
            return false;
        }
        if (offset < end) {
            cycle_->patch(offset, *slice);
            slice->bytes = slice->bytes.subspan(std::min(length, end - offset));
        }
        accept(std::move(*slice));
        dirty_ = true;
        bytes_acknowledged_ += length;
    }
    outbox_.add([pending] { std::get<StreamWrite>(*pending).done(Status()); });
    discard(std::move(write.data.buffer));
    pending_.take();
    return true;
}

void FileWriterImpl::give_back(const PendingPointer& pending) {
    outbox_.add([pending] {
        auto& write = std::get<StreamWrite>(*pending);
        write.out_of_order(std::move(write.data));
    });
    pending_.take();
}

std::optional<Slice> FileWriterImpl::charge(const PendingPointer& pending) {
    auto& write = std::get<StreamWrite>(*pending);
    if (!write.charged) {
        if (std::optional<Slice> copied = cycle_->copy(write.data.data)) {
            return copied;
        }
        if (!environment_.pool.try_recharge(write.data.buffer, MemoryUse::kWrite)) {
            wait_to_be_charged(pending);
            return std::nullopt;
        }
    }
    return cycle_->keep(std::move(write.data.buffer), write.data.data);
}

void FileWriterImpl::wait_to_be_charged(const PendingPointer& pending) {
    charging_ = true;
    outbox_.add([keep = self(), pending] {
        auto& waiting = std::get<StreamWrite>(*pending);
        keep->environment_.pool.recharge(std::move(waiting.data.buffer), MemoryUse::kWrite,
                                         [keep, pending](Buffer buffer) { keep->charged(pending, std::move(buffer)); });
    });
}

void FileWriterImpl::charged(const PendingPointer& pending, Buffer buffer) {
    MutexLock lock(mutex_);
    charging_ = false;
    if (end_.failure()) {
        discard(std::move(buffer));
    } else {
        auto& write = std::get<StreamWrite>(*pending);
        write.data.buffer = std::move(buffer);
        write.charged = true;
    }
    deliver(lock);
}

bool FileWriterImpl::truncate_step(const PendingPointer& pending) {
    const std::uint64_t size = std::get<PendingTruncate>(*pending).size;
    if (size > group_->plan().reachable_size(size)) {
        fail(
            failure(EFBIG, format("truncate {}: {} bytes are more than the largest size this memory budget can upload; "
                                  "use a larger --max-memory",
                                  escaped(key_), size))
                .value());
        return false;
    }
    if (size > size_) {
        size_ = size;
        touched_ = dirty_ = true;
        cycle_->set_known_size(size);
    } else if (size < size_) {
        if (size == 0) {
            start_over();
        } else if (!cut(size)) {
            return false;
        }
        size_ = size;
        kept_size_ = std::min(kept_size_, size);
        touched_ = dirty_ = true;
    }
    outbox_.add([pending] { std::get<PendingTruncate>(*pending).done(Status()); });
    pending_.take();
    return true;
}

// --- completions, and the lack of memory

bool FileWriterImpl::resume(const WeakCycle& cycle, const std::function<void(UploadCycle&)>& change) {
    MutexLock lock(mutex_);
    if (!is_current(cycle)) {
        return false;
    }
    change(*cycle_);
    deliver(lock);
    return true;
}

StuckMemory FileWriterImpl::stuck_memory() const {
    const MutexLock lock(mutex_);
    return cycle_->stuck_memory();
}

void FileWriterImpl::relieve(Relief relief) {
    const auto keep = self();
    MutexLock lock(mutex_);
    cycle_->relieve(relief);
    deliver(lock);
}

// --- the stream

void FileWriterImpl::accept(Slice slice) {
    cycle_->accept(std::move(slice));
    size_ = std::max(size_, cycle_->end());
}

bool FileWriterImpl::pass_to(std::uint64_t end) {
    if (const FileRange* run = next_run(cycle_->end())) {
        if (run->offset == cycle_->end()) {
            return keep_run(*run);
        }
        end = std::min(end, run->offset);
    }
    if (cycle_->frames_under_way() >= kZeroFramesUnderWay || cycle_->parts_under_way() >= kZeroPartsUnderWay) {
        return false;
    }
    dirty_ = true;
    accept(zeros(static_cast<std::size_t>(std::min<std::uint64_t>(kZeroBlock, end - cycle_->end()))));
    return true;
}

void FileWriterImpl::fail(Error error) {
    end_.log(error);
    stop(std::move(error));
}

void FileWriterImpl::stop(Error error) {
    if (end_.failure()) {
        return;
    }
    end_.fail(std::move(error));
    // The reply comes too late for any caller.
    may_be_published_ = is_being_published();
    const Error& why = *end_.failure();
    pending_.refuse_all(why, outbox_);
    for (CommitDone& done : std::exchange(commit_done_, {})) {
        outbox_.add([done = std::move(done), why] { done(failure(why)); });
    }
    end_upload(cycle_->take_upload());
    end_cycle();
}

}  // namespace ckptfs
