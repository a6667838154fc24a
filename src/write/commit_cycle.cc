// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "write/file_writer_impl.h"

namespace ckptfs {

// --- where the next commit starts from

bool FileWriterImpl::cycle_ready() {
    if (!cycle_begun_) {
        cycle_begun_ = true;
        group_->enter(this, self());
        encoder_ = environment_.codec.encoder(key_);
        copy_ = plan_copy(kept_size_, group_->plan());
        sequencer_ = FrameSequencer(copy_.fetch_from);
        assembler_.emplace(group_->plan(), static_cast<int>(copy_.pieces.size()), copy_.fetch_from);
        if (size_ > kept_size_) {
            assembler_->set_known_size(size_);
        }
    }
    if (sequencer_.end() >= kept_size_) {
        return true;
    }
    if (!fetching_) {
        fetch_block();
    }
    return false;
}

void FileWriterImpl::fetch_block() {
    fetching_ = true;
    auto fetch = std::make_shared<Fetch>();
    fetch->offset = sequencer_.end();
    fetch->wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(BufferPool::kPayloadSize, kept_size_ - fetch->offset));
    outbox_.add([keep = self(), cycle = cycle_, fetch, key = key_, etag = committed_->etag] {
        keep->environment_.pool.take(MemoryUse::kWrite, [keep, cycle, fetch, key, etag](Buffer buffer) {
            fetch->buffer = std::move(buffer);
            GetRequest request;
            request.key = key;
            request.range = ByteRange{fetch->offset, fetch->wanted, false};
            request.if_match = etag;
            request.on_body = [fetch](ByteSpan bytes) {
                if (bytes.size() > fetch->wanted - fetch->filled) {
                    return false;
                }
                std::memcpy(fetch->buffer.data() + fetch->filled, bytes.data(), bytes.size());
                fetch->filled += bytes.size();
                return true;
            };
            keep->environment_.store.get(std::move(request), [keep, cycle, fetch](Result<GetResponse> result) {
                keep->fetched(cycle, fetch, std::move(result));
            });
        });
    });
}

void FileWriterImpl::fetched(std::uint64_t cycle, const std::shared_ptr<Fetch>& fetch, Result<GetResponse> result) {
    std::unique_lock lock(mutex_);
    if (failure_ || cycle != cycle_) {
        lock.unlock();
        return;
    }
    fetching_ = false;
    if (!result) {
        fail(std::move(result.error()));
    } else if (fetch->filled != fetch->wanted) {
        fail(failure(EIO, format("write {}: the store sent {} bytes from offset {} instead of {}", escaped(key_),
                                 fetch->filled, fetch->offset, fetch->wanted))
                 .value());
    } else {
        const ByteSpan data(fetch->buffer.data(), fetch->filled);
        Slice slice;
        discard(room_.keep(std::move(fetch->buffer), data, slice));
        accept(std::move(slice));
    }
    deliver(lock);
}

void FileWriterImpl::end_cycle() {
    ++cycle_;
    cycle_begun_ = false;
    fetching_ = false;
    discard(std::exchange(sequencer_, FrameSequencer()));
    if (assembler_) {
        discard(std::move(*assembler_));
        assembler_.reset();
    }
    discard(room_.release());
    copy_ = CopyPlan();
    parts_under_way_ = 0;
    latest_sending_.clear();
    holds_since_ = 0;
    spilling_ = spill_when_encoded_ = false;
    sent_early_ = 0;
    group_->leave(this);
    outbox_.add([group = group_] { group->staging().tidy(); });
}

// --- parts

UploadTarget FileWriterImpl::target() const {
    return UploadTarget{key_, encoder_->metadata(), encoder_->content_encoding()};
}

void FileWriterImpl::begin_upload() {
    if (upload_) {
        return;
    }
    upload_ = Upload::create(environment_.store, target());
    const bool whole = copy_.pieces.size() == 1 && copy_.pieces[0].length == committed_->stored_size;
    int number = 0;
    for (const CopyPlan::Piece& piece : copy_.pieces) {
        CopySource source{key_, committed_->etag, piece.length, std::nullopt};
        if (!whole) {
            source.range = ByteRange{piece.offset, piece.length, false};
        }
        ++parts_under_way_;
        outbox_.add([keep = self(), upload = upload_, part = ++number, source = std::move(source)] {
            upload->copy_part(part, source, [keep, upload](const Status& status) { keep->part_sent(upload, status); });
        });
    }
}

void FileWriterImpl::send(std::vector<Part> parts) {
    for (Part& part : parts) {
        if (failure_) {
            discard(std::move(part));
            continue;
        }
        if (part.number() > kMaxPartNumber) {
            fail(failure(EFBIG, format("write {}: more than {} parts at offset {}; use a larger --part-size or "
                                       "--max-memory",
                                       escaped(key_), kMaxPartNumber, part.begin()))
                     .value());
            discard(std::move(part));
            continue;
        }
        begin_upload();
        ++parts_under_way_;
        const std::uint64_t sending = latest_sending_[part.number()] = ++sendings_;
        outbox_.add([keep = self(), upload = upload_, encoder = encoder_, part = std::move(part), sending] {
            keep->prepare(encoder, part, [keep, upload, sending](Result<Part> ready) {
                if (ready) {
                    keep->send_prepared(upload, *ready, sending);
                } else {
                    keep->preparation_failed(upload, std::move(ready.error()));
                }
            });
        });
    }
}

void FileWriterImpl::send_prepared(const std::shared_ptr<Upload>& upload, const Part& part, std::uint64_t sending) {
    if (superseded(part.number(), sending)) {
        part_sent(upload, Status());
        return;
    }
    const std::uint64_t bytes = part.bytes_in_memory();
    group_->begins_to_leave(bytes);
    upload->send_part(part.number(), part.body(), part.crc32c(), [keep = self(), upload, bytes](const Status& status) {
        keep->group_->has_left(bytes);
        keep->part_sent(upload, status);
    });
}

void FileWriterImpl::preparation_failed(const std::shared_ptr<Upload>& upload, Error error) {
    std::unique_lock lock(mutex_);
    if (upload == upload_) {
        fail(about_this_file(std::move(error)));
    }
    deliver(lock);
}

// The same part has been sent again meanwhile, or cut off; its preparation may have overtaken this one.
bool FileWriterImpl::superseded(int number, std::uint64_t sending) const {
    const std::lock_guard lock(mutex_);
    const auto latest = latest_sending_.find(number);
    return latest != latest_sending_.end() && latest->second != sending;
}

void FileWriterImpl::part_sent(const std::shared_ptr<Upload>& upload, const Status& status) {
    std::unique_lock lock(mutex_);
    if (upload == upload_ && !failure_) {
        --parts_under_way_;
        if (!status) {
            fail(status.error());
        }
    }
    outbox_.add([group = group_] { group->relieve(); });
    deliver(lock);
}

// --- commit

void FileWriterImpl::commit_requested(PendingCommit commit) {
    const bool nothing_to_publish = !dirty_ || (commit.reason == CommitReason::kFsync && !touched_ && !committed_);
    if (nothing_to_publish) {
        outbox_.add([done = std::move(commit.done), object = committed_.value_or(CommittedObject())] { done(object); });
        return;
    }
    commit_ = ActiveCommit{};
    commit_->done.push_back(std::move(commit.done));
    commit_->size = size_;
    while (!pending_.empty() && std::holds_alternative<PendingCommit>(*pending_.front())) {
        commit_->done.push_back(std::move(std::get<PendingCommit>(*pending_.front()).done));
        pending_.pop_front();
    }
}

bool FileWriterImpl::commit_step() {
    if (commit_->publishing || !cycle_ready()) {
        return false;
    }
    if (sequencer_.end() < size_) {
        return fill_zeros(size_);
    }
    if (!std::exchange(commit_->last_frame_cut, true)) {
        if (std::optional<FrameSequencer::RawFrame> last = sequencer_.cut()) {
            encode(std::move(*last));
        }
    }
    if (sequencer_.under_way() > 0) {
        return false;
    }
    if (!upload_ && copy_.pieces.empty()) {
        put_whole();
        return false;
    }
    if (!std::exchange(commit_->parts_sent, true)) {
        begin_upload();
        send(assembler_->take_patched());
        send(assembler_->seal());
        return !failure_;
    }
    if (parts_under_way_ > 0) {
        return false;
    }
    commit_->publishing = true;
    outbox_.add([keep = self(), upload = upload_, size = assembler_->end()] {
        upload->complete(size,
                         [keep, upload](Result<PutResponse> result) { keep->published(upload, std::move(result)); });
    });
    return false;
}

void FileWriterImpl::put_whole() {
    commit_->publishing = true;
    upload_ = Upload::create(environment_.store, target());
    outbox_.add([keep = self(), upload = upload_, encoder = encoder_, part = assembler_->take_whole()] {
        keep->prepare(encoder, part, [keep, upload](Result<Part> whole) {
            if (!whole) {
                keep->preparation_failed(upload, std::move(whole.error()));
                return;
            }
            const std::uint64_t bytes = whole->bytes_in_memory();
            keep->group_->begins_to_leave(bytes);
            upload->put(whole->body(), whole->crc32c(), [keep, upload, bytes](Result<PutResponse> result) {
                keep->group_->has_left(bytes);
                keep->published(upload, std::move(result));
            });
        });
    });
}

void FileWriterImpl::published(const std::shared_ptr<Upload>& upload, Result<PutResponse> result) {
    std::unique_lock lock(mutex_);
    if (upload == upload_ && !failure_) {
        if (!result) {
            fail(std::move(result.error()));
        } else {
            CommittedObject object;
            object.etag = std::move(result->etag);
            object.size = object.stored_size = size_;
            object.modified =
                result->last_modified == WallTime() ? environment_.clock.wall_now() : result->last_modified;
            committed_ = object;
            kept_size_ = bytes_committed_ = size_;
            dirty_ = false;
            for (CommitDone& done : commit_->done) {
                outbox_.add([done = std::move(done), object] { done(object); });
            }
            commit_.reset();
            upload_.reset();
            end_cycle();
        }
    }
    deliver(lock);
}

void FileWriterImpl::end_upload() {
    if (!upload_) {
        return;
    }
    ++ending_;
    outbox_.add([keep = self(), upload = std::exchange(upload_, nullptr)] {
        upload->abort([keep](const Status& status) {
            std::unique_lock lock(keep->mutex_);
            if (!status) {
                keep->ending_status_ = status;
            }
            if (--keep->ending_ == 0) {
                for (Done& done : keep->aborted_) {
                    keep->outbox_.add([done = std::move(done), answer = keep->ending_status_] { done(answer); });
                }
                keep->aborted_.clear();
            }
            keep->deliver(lock);
        });
    });
}

}  // namespace ckptfs
