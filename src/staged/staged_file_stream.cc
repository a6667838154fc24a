// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/codec.h"
#include "ckptfs/log.h"
#include "staged/staged_file_impl.h"
#include "write/part_plan.h"

namespace ckptfs {
namespace {

// A file that stays below this is sent by one request, whatever is done to it until then.
constexpr std::uint64_t kStagedAtFirst = kFirstPartSize;
// A process that skips more is not writing in order.
constexpr std::uint64_t kLargestGap = kFrameSize;

}  // namespace

// A stream begins with what is kept of the base. The base of a file that lost its name is gone with the name, unless it
// is hidden.
bool StagedFile::may_stream() const {
    return may_stream_ && !(orphaned_ && content_.unchanged_prefix() > 0 && temporaries_.empty());
}

bool StagedFile::should_stream(std::uint64_t end) const {
    const std::optional<ByteRun> run = content_.run_behind_base();
    return may_stream() && run && run->end == end && run->end - run->begin >= kStagedAtFirst;
}

bool StagedFile::can_stream(std::uint64_t offset) const {
    const std::optional<ByteRun> run = content_.run_behind_base();
    return may_stream() && offset == (run ? run->end : content_.unchanged_prefix()) && (run || !content_.any_staged());
}

void StagedFile::start_stream(const PendingPointer& pending) {
    const std::uint64_t prefix = prefix_to_copy(content_);
    const std::uint64_t end = last_end_;
    const HiddenPlace& place = environment_.hidden;
    stream_ = open_writer(orphaned_ ? new_unseen_key(place, key_) : new_hidden_key(place, key_), prefix);
    stream_->when_failed([weak = std::weak_ptr(self()), stream = stream_.get()](const Error& error) {
        if (const auto file = weak.lock()) {
            file->stream_failed(stream, error);
        }
    });
    outbox_.add([keep = self(), pending, source = source({}), run = ByteRun{prefix, end}, writer = stream_] {
        feed(keep->environment_.write, source, run, writer,
             [keep, pending](const Status& status) { keep->stream_started(pending, status); });
    });
}

void StagedFile::stream_started(const PendingPointer& pending, const Status& status) {
    MutexLock lock(mutex_);
    if (status && !end_.failure()) {
        discard_staged();
    } else if (!status) {
        stop_for(stream_, status.error());
    }
    if (pending) {
        outbox_.add([keep = self(), pending] { keep->carry_out(pending); });
    } else {
        next();
    }
    deliver(lock);
}

void StagedFile::stream_failed(const FileWriter* stream, const Error& error) {
    MutexLock lock(mutex_);
    if (stream == stream_.get()) {
        end_.tell(error);
    }
    deliver(lock);
}

void StagedFile::write_through(const PendingPointer& pending, std::uint64_t offset) {
    if (offset > last_end_ + kLargestGap) {
        leave_stream(pending);
        return;
    }
    const std::uint64_t length = std::get<PendingWrite>(*pending).data.data.size();
    outbox_.add([keep = self(), pending, offset, length, stream = stream_] {
        stream->write_in_order(
            offset, std::move(std::get<PendingWrite>(*pending).data),
            [keep, pending, offset, length](const Status& status) {
                MutexLock lock(keep->mutex_);
                if (!status) {
                    keep->stop(status.error());
                }
                keep->written(pending, offset, length, status);
                keep->deliver(lock);
            },
            [keep, pending](WriteData data) {
                std::get<PendingWrite>(*pending).data = std::move(data);
                MutexLock lock(keep->mutex_);
                keep->leave_stream(pending);
                keep->deliver(lock);
            });
    });
}

void StagedFile::truncate_stream(const PendingPointer& pending, std::uint64_t size) {
    if (size < last_end_) {
        leave_stream(pending);
        return;
    }
    touched_ = dirty_ = true;
    content_.truncate(size);
    outbox_.add([keep = self(), pending, size, stream = stream_] {
        stream->truncate(size, [keep, pending](const Status& status) {
            MutexLock lock(keep->mutex_);
            if (!status) {
                keep->stop(status.error());
            }
            keep->answer<PendingTruncate>(pending);
            keep->deliver(lock);
        });
    });
}

void StagedFile::leave_stream(const PendingPointer& pending) {
    may_stream_ = false;
    if (!stream_) {
        outbox_.add([keep = self(), pending] { keep->carry_out(pending); });
        return;
    }
    hiding_at_ = stream_->key();
    outbox_.add([keep = self(), pending, stream = stream_, end = last_end_] {
        // Zeros that were only announced need not be sent.
        stream->truncate(end, [](const Status&) {});
        stream->commit(CommitReason::kClose, [keep, pending, key = stream->key()](Result<CommittedObject> object) {
            if (object) {
                object->key = key;
            }
            keep->stream_left(pending, std::move(object));
        });
    });
}

void StagedFile::hiding_ended(const Result<CommittedObject>& object) {
    // The object may be there although the reply was lost: then it is removed when the file fails.
    if (object || !object.error().outcome_unknown) {
        hiding_at_.reset();
    }
}

void StagedFile::stream_left(const PendingPointer& pending, Result<CommittedObject> object) {
    MutexLock lock(mutex_);
    hiding_ended(object);
    if (!object) {
        stop(std::move(object.error()));
    } else if (end_.failure()) {
        remove_temporary(object->key);
    } else {
        const std::uint64_t size = content_.size();
        temporaries_.push_back(object->key);
        start_from(std::move(*object));
        content_.truncate(size);
        stream_ = nullptr;
    }
    outbox_.add([keep = self(), pending] { keep->carry_out(pending); });
    deliver(lock);
}

// --- what other mounts see of a file that lost its name

void StagedFile::orphan(Error why, Done done) {
    const auto keep = self();
    MutexLock lock(mutex_);
    if (end_.failure() || is_being_published()) {
        lock.unlock();
        abort(std::move(why), std::move(done));
        return;
    }
    orphaned_ = why;
    // If the file fails before the turn of this call comes, all of it is ended.
    const auto ended = [keep, why = std::move(why), done = std::move(done)](const Status& status) {
        status ? done({}) : keep->abort(why, done);
    };
    if (stream_ || !temporaries_.empty()) {
        pending_.add(std::make_shared<Pending>(PendingUnseen{ended}));
        advance();
    } else {
        outbox_.add([ended] { ended({}); });
    }
    deliver(lock);
}

void StagedFile::carry_out(const PendingPointer& pending, PendingUnseen& unseen) {
    const auto is_seen = [&prefix = environment_.hidden.prefix](const std::string& key) {
        return parse_hidden_key(prefix, key).has_value();
    };
    if (stream_ && is_seen(stream_->key()) &&
        !stream_->move_to(new_unseen_key(environment_.hidden, key_), Overwrite::kAllowed)) {
        // It may go on as a stream, from what is there then.
        const bool in_order = may_stream_;
        leave_stream(pending);
        may_stream_ = in_order;
    } else if (!stream_ && std::any_of(temporaries_.begin(), temporaries_.end(), is_seen)) {
        copy_hidden_base(pending);
    } else {
        answer_unseen(unseen);
    }
}

void StagedFile::copy_hidden_base(const PendingPointer& pending) {
    hiding_at_ = new_unseen_key(environment_.hidden, key_);
    committer_ = StreamWriter::create(environment_.write, *hiding_at_, base_->object);
    decide_end_of(*committer_);
    outbox_.add([keep = self(), pending, writer = committer_] {
        writer->commit(CommitReason::kClose, [keep, pending, key = writer->key()](Result<CommittedObject> object) {
            if (object) {
                object->key = key;
            }
            keep->hidden_base_copied(pending, std::move(object));
        });
    });
}

void StagedFile::hidden_base_copied(const PendingPointer& pending, Result<CommittedObject> object) {
    MutexLock lock(mutex_);
    hiding_ended(object);
    if (!object) {
        stop_for(committer_, std::move(object.error()));
    } else if (end_.failure()) {
        remove_temporary(object->key);
    } else {
        committer_ = nullptr;
        for (const std::string& key : std::exchange(temporaries_, {object->key})) {
            remove_temporary(key);
        }
        auto reader = std::make_shared<BaseReader>(environment_.read, object->key, *object);
        base_ = Base{std::move(*object), std::move(reader)};
    }
    answer_unseen(std::get<PendingUnseen>(*pending));
    deliver(lock);
}

void StagedFile::answer_unseen(PendingUnseen& unseen) {
    // What could not be removed is logged.
    end_.when_ended([done = std::move(unseen.done)](const Status& /*ended*/) { done({}); });
    next();
}

}  // namespace ckptfs
