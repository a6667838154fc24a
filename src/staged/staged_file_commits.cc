// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "staged/staged_file_impl.h"
#include "write/writer_group.h"

namespace ckptfs {

FeedSource StagedFile::source(std::vector<FileRange> kept) const {
    return FeedSource{content_, std::move(kept), staged_, base_ ? base_->reader : nullptr};
}

std::shared_ptr<StreamWriter> StagedFile::open_writer(const std::string& key, std::uint64_t prefix) {
    std::optional<CommittedObject> start;
    if (prefix > 0) {
        start = base_->object;
    }
    auto writer = StreamWriter::create(environment_.write, key, std::move(start), overwrite_);
    decide_end_of(*writer);
    outbox_.add([writer, prefix, cut = prefix < content_.base_size(), size = content_.size()] {
        // Errors are reported by what follows.
        const auto ignore = [](const Status&) {};
        if (prefix > 0 && cut) {
            writer->truncate(prefix, ignore);
        }
        if (size > prefix) {
            writer->truncate(size, ignore);
        }
    });
    return writer;
}

void StagedFile::decide_end_of(StreamWriter& writer) {
    writer.before_ending([weak = std::weak_ptr(self()), ending = &writer](std::function<void()> end) {
        if (const auto file = weak.lock()) {
            file->writer_ends(ending, std::move(end));
        } else {
            end();
        }
    });
}

void StagedFile::writer_ends(const FileWriter* writer, std::function<void()> end) {
    MutexLock lock(mutex_);
    // A stream that fails has reported that by now.
    if (end_.failure() || writer == stream_.get()) {
        end_.end_when_told(std::move(end));
    } else if (writer == committer_.get()) {
        end_.end_when_decided(std::move(end));
    } else {
        outbox_.add(std::move(end));
    }
    deliver(lock);
}

void StagedFile::start_commit() {
    if (stream_) {
        commit_stream();
    } else {
        commit_staged();
    }
}

void StagedFile::commit_stream() {
    const auto publish = [keep = self()](Result<CommittedObject> object) { keep->published(std::move(object)); };
    if (stream_->move_to(key_, overwrite_)) {
        // Nothing has been sent yet.
        outbox_.add([stream = stream_, publish] { stream->commit(CommitReason::kClose, publish); });
        return;
    }
    hiding_at_ = stream_->key();
    outbox_.add([keep = self(), stream = stream_, publish] {
        stream->commit(CommitReason::kClose, [keep, stream, publish](Result<CommittedObject> object) {
            MutexLock lock(keep->mutex_);
            keep->hiding_ended(object);
            if (object && !keep->end_.failure()) {
                keep->temporaries_.push_back(stream->key());
                stream->go_on_at(keep->key_, keep->overwrite_);
                keep->outbox_.add([stream, publish] { stream->commit(CommitReason::kClose, publish); });
            } else {
                if (object) {
                    keep->remove_temporary(stream->key());
                }
                keep->outbox_.add([object = std::move(object), publish] { publish(object); });
            }
            keep->deliver(lock);
        });
    });
}

void StagedFile::commit_staged() {
    const PartPlan& plan = environment_.write.writers.get(environment_.write)->plan();
    // All that lies between two runs is one part, unless it makes two.
    const bool any_size = plan.equal_size() == 0 && plan.largest_part() >= 2 * kMinPartSize;
    if (!any_size || runs_to_copy(content_, {}).empty() ||
        environment_.write.store.lacks_part_copy(base_->object.key)) {
        commit_whole();
        return;
    }
    outbox_.add([keep = self(), object = base_->object] {
        read_committed_frames(keep->environment_.write.store, keep->environment_.write.codec, object.key, object,
                              [keep](Result<CommittedFrames> frames) { keep->commit_around(std::move(frames)); });
    });
}

void StagedFile::commit_whole() {
    const std::uint64_t prefix = prefix_to_copy(content_);
    committer_ = open_writer(key_, prefix);
    send_staged(source({}), prefix);
}

void StagedFile::commit_around(Result<CommittedFrames> frames) {
    MutexLock lock(mutex_);
    if (frames && !end_.failure()) {
        KeptContent kept;
        kept.prefix = prefix_to_copy(content_);
        kept.runs = runs_to_copy(content_, frames->records);
        kept.frames = std::move(*frames);
        FeedSource from = source(kept.runs);
        const std::uint64_t prefix = kept.prefix;
        keeps_runs_ = !kept.runs.empty();
        committer_ = StreamWriter::create(environment_.write, key_, base_->object, std::move(kept), overwrite_);
        decide_end_of(*committer_);
        outbox_.add([writer = committer_, size = content_.size()] {
            // Errors are reported by what follows.
            writer->truncate(size, [](const Status&) {});
        });
        send_staged(std::move(from), prefix);
    } else {
        outbox_.add(
            [keep = self(), why = frames ? *end_.failure() : frames.error()] { keep->published(failure(why)); });
    }
    deliver(lock);
}

void StagedFile::send_staged(FeedSource from, std::uint64_t prefix) {
    outbox_.add([keep = self(), source = std::move(from), run = ByteRun{prefix, content_.size()}, writer = committer_] {
        feed(keep->environment_.write, source, run, writer, [keep, writer](const Status& sent) {
            if (!sent) {
                keep->published(failure(sent.error()));
                return;
            }
            writer->commit(CommitReason::kClose,
                           [keep](Result<CommittedObject> object) { keep->published(std::move(object)); });
        });
    });
}

// A store that takes UploadPart may refuse UploadPartCopy.
bool StagedFile::commit_without_copies(const Error& error) {
    const bool version_is_gone = error.errno_value == ESTALE || error.errno_value == ENOENT;
    // Only if it was copies that failed: a publish that may have been made must not be repeated over what others have
    // saved.
    const bool may_be_published = committer_ && !committer_->unanswered_commits().empty();
    if (!std::exchange(keeps_runs_, false) || end_.failure() || error.retryable || version_is_gone ||
        may_be_published || overwrite_ == Overwrite::kRefused || !committer_ || !committer_->failed()) {
        return false;
    }
    outbox_.add([key = key_] {
        log_warning(format("{}: the store could not copy the unchanged ranges; uploading them", escaped(key)));
    });
    end_.goes_on();
    note_unanswered(committer_);
    commit_whole();
    return true;
}

void StagedFile::published(Result<CommittedObject> object) {
    MutexLock lock(mutex_);
    if (!object && commit_without_copies(object.error())) {
        deliver(lock);
        return;
    }
    keeps_runs_ = false;
    committing_ = false;
    if (object && !end_.failure()) {
        object->key = key_;
        start_from(std::move(*object));
        stream_ = nullptr;
        committer_ = nullptr;
        unanswered_.clear();
        dirty_ = false;
        overwrite_ = Overwrite::kAllowed;
        for (const std::string& key : std::exchange(temporaries_, {})) {
            remove_temporary(key);
        }
        answer_commit();
    } else {
        if (!object) {
            stop_for(committer_ ? committer_ : stream_, std::move(object.error()));
        }
        next();
    }
    deliver(lock);
}

void StagedFile::start_from(CommittedObject object) {
    auto reader = std::make_shared<BaseReader>(environment_.read, object.key, object);
    content_ = StagedContent(object.size);
    base_ = Base{std::move(object), std::move(reader)};
    discard_staged();
}

// Reads that are under way keep what they need.
void StagedFile::discard_staged() {
    outbox_.add(
        [keep = std::exchange(staged_, std::make_shared<StagedBytes>(environment_.write.config.staging_dir, key_))] {});
}

void StagedFile::answer_commit() {
    // An unmount right after the answer leaves nothing behind.
    if (end_.is_under_way()) {
        commit_waits_ = true;
        return;
    }
    commit_waits_ = false;
    CommittedObject object = base_ ? base_->object : CommittedObject();
    object.key.clear();
    for (CommitDone& done : std::exchange(commit_done_, {})) {
        outbox_.add([done = std::move(done), object] { done(object); });
    }
    next();
}

}  // namespace ckptfs
