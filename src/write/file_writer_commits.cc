// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "write/file_writer_impl.h"

namespace ckptfs {

void FileWriterImpl::commit_requested(PendingCommit commit) {
    const bool nothing_to_publish = !dirty_ || (saves_only_writes(commit.reason) && !touched_ && !committed_);
    if (nothing_to_publish) {
        outbox_.add([done = std::move(commit.done), object = committed_.value_or(CommittedObject())] { done(object); });
        return;
    }
    cycle_->begin_commit();
    commit_done_ = pending_.take_commits();
    commit_done_.insert(commit_done_.begin(), std::move(commit.done));
}

bool FileWriterImpl::commit_step() {
    if (cycle_->is_publishing() || !cycle_ready()) {
        return false;
    }
    return cycle_->end() < size_ ? pass_to(size_) : cycle_->commit_step(size_);
}

std::shared_ptr<Upload> FileWriterImpl::new_upload(Metadata metadata, std::string content_encoding) {
    is_write_id_used_ = true;
    return Upload::create(environment_.store,
                          {key_, std::move(metadata), std::move(content_encoding), overwrite_ == Overwrite::kRefused,
                           &environment_.permits, next_write_id()});
}

// The ID of the commit that comes, whatever uploads lead to it.
const std::string& FileWriterImpl::next_write_id() {
    if (write_id_.empty()) {
        write_id_ = random_uuid();
    }
    return write_id_;
}

std::string FileWriterImpl::shown_key() const {
    return escaped(key_);
}

Error FileWriterImpl::about_this_file(Error error) const {
    error.message = format("write {}: {}", shown_key(), error.message);
    return error;
}

CopySource FileWriterImpl::committed_source() const {
    return {committed_key(), committed_->etag, committed_->stored_size, std::nullopt};
}

void FileWriterImpl::published(Result<PutResponse> result) {
    if (!result) {
        const bool is_unknown = result.error().outcome_unknown;
        fail(std::move(result.error()));
        may_be_published_ = is_unknown;
        return;
    }
    CommittedObject object;
    object.etag = std::move(result->etag);
    object.size = size_;
    object.stored_size = cycle_->stored_size();
    object.modified = result->last_modified == WallTime() ? environment_.clock.wall_now() : result->last_modified;
    committed_ = object;
    write_id_.clear();
    is_write_id_used_ = false;
    CommittedFrames frames{cycle_->encoder(), {}};
    if (!frames.plain()) {
        frames.records = cycle_->take_records();
    }
    committed_frames_ = std::make_shared<const CommittedFrames>(std::move(frames));
    kept_runs_.clear();
    kept_size_ = bytes_committed_ = size_;
    dirty_ = false;
    overwrite_ = Overwrite::kAllowed;
    for (CommitDone& done : std::exchange(commit_done_, {})) {
        outbox_.add([done = std::move(done), object] { done(object); });
    }
    end_cycle();
}

bool FileWriterImpl::cut(std::uint64_t size) {
    if (!cycle_->begun() || size >= cycle_->end()) {
        return true;
    }
    // Frames that are being encoded or staged, and blocks that are being fetched, have to arrive first.
    if (!cycle_->is_quiet() || !cycle_ready()) {
        return false;
    }
    if (cycle_->begins_behind(size) && !cycle_->upload()) {
        end_cycle();
        return true;
    }
    if (!cycle_->cut(size)) {
        fail(failure(EOPNOTSUPP, format("truncate {}: cannot truncate to {}: bytes before {} are already in the "
                                        "store; write the file again",
                                        escaped(key_), size, cycle_->patchable_from()))
                 .value());
        return false;
    }
    return true;
}

void FileWriterImpl::start_over() {
    end_upload(cycle_->take_upload());
    end_cycle();
    kept_runs_.clear();
    kept_size_ = 0;
}

std::shared_ptr<UploadCycle> FileWriterImpl::new_cycle() {
    return std::make_shared<UploadCycle>(*this, environment_, group_);
}

void FileWriterImpl::end_cycle() {
    outbox_.add([ended = std::exchange(cycle_, new_cycle())] {});
    group_->leave(this);
    outbox_.add([group = group_] { group->staging().tidy(); });
}

void FileWriterImpl::end_upload(std::shared_ptr<Upload> upload) {
    if (!upload) {
        return;
    }
    end_.begin();
    auto end = [keep = self(), upload] { upload->abort([keep](const Status& status) { keep->upload_ended(status); }); };
    if (end_.failure()) {
        // The upload's memory is freed at once.
        outbox_.add([upload = std::move(upload)] { upload->give_up(); });
        end_.end_when_told(std::move(end));
    } else {
        outbox_.add(std::move(end));
    }
}

void FileWriterImpl::upload_ended(const Status& status) {
    MutexLock lock(mutex_);
    end_.ended(status);
    end_.answer();
    deliver(lock);
}

}  // namespace ckptfs
