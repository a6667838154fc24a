// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "write/block_encoding.h"
#include "write/file_writer_impl.h"

namespace ckptfs {
namespace {

// The file's bytes of a part that is one frame of a container.
Result<Part> decoded(const Part& part, const FrameEncoder& made_by, const FrameEncoder& plain) {
    Part whole(part.number(), part.begin(), part.stored_offset());
    for (const PartFrame& frame : part.frames()) {
        std::string bytes(frame.size, '\0');
        const MutableByteSpan target = std::as_writable_bytes(std::span(bytes));
        if (Status good = made_by.decode(frame.stored_bytes(), frame.referenced_bytes(), target, frame.record.checksum);
            !good) {
            return failure(std::move(good.error()));
        }
        PartFrame raw;
        raw.offset = frame.offset;
        raw.size = frame.size;
        Result<EncodedFrame> encoded = plain.encode(Payload::from_string(std::move(bytes)), {}, EncodeEffort::kNormal);
        if (!encoded) {
            return failure(std::move(encoded.error()));
        }
        take_encoded(raw, plain, std::move(*encoded), Payload());
        whole.add(std::move(raw));
    }
    return whole;
}

}  // namespace

void FileWriterImpl::end_cycle() {
    outbox_.add([ended = std::exchange(cycle_, std::make_shared<UploadCycle>())] {});
    group_->leave(this);
    outbox_.add([group = group_] { group->staging().tidy(); });
}

// --- parts

void FileWriterImpl::forget_sent_parts() {
    cycle_->parts_under_way = cycle_->parts_being_prepared = 0;
    cycle_->latest_sending.clear();
}

UploadTarget FileWriterImpl::target(std::optional<std::uint64_t> size) const {
    return UploadTarget{key_, cycle_->encoder->metadata(size), cycle_->encoder->content_encoding(),
                        overwrite_ == Overwrite::kRefused};
}

void FileWriterImpl::begin_upload() {
    if (cycle_->upload) {
        return;
    }
    cycle_->upload = Upload::create(environment_.store, target(std::nullopt));
    write_id_ = cycle_->upload->write_id();
    copy_parts(1, cycle_->copy.pieces);
}

void FileWriterImpl::send(std::vector<Part> parts) {
    for (Part& part : parts) {
        if (failure_) {
            discard(std::move(part));
            continue;
        }
        if (!may_be_sent(part)) {
            discard(std::move(part));
            continue;
        }
        begin_upload();
        ++cycle_->parts_under_way;
        ++cycle_->parts_being_prepared;
        const std::uint64_t sending = cycle_->latest_sending[part.number()] = ++cycle_->sendings;
        outbox_.add(
            [keep = self(), upload = cycle_->upload, encoder = cycle_->encoder, part = std::move(part), sending] {
                keep->prepare(encoder, part, kMinPartSize, [keep, upload, sending](Result<Part> ready) {
                    if (ready) {
                        keep->send_prepared(upload, *ready, sending);
                    } else {
                        keep->preparation_failed(upload, std::move(ready.error()));
                    }
                });
            });
    }
}

bool FileWriterImpl::may_be_sent(const Part& part) {
    if (part.number() <= kMaxPartNumber) {
        return true;
    }
    fail(failure(EFBIG, format("write {}: more than {} parts at offset {}; use a larger --part-size or --max-memory",
                               escaped(key_), kMaxPartNumber, part.begin()))
             .value());
    return false;
}

void FileWriterImpl::send_prepared(const std::shared_ptr<Upload>& upload, const Part& part, std::uint64_t sending) {
    std::unique_lock lock(mutex_);
    // Of a file that failed or was started over meanwhile, nothing is noted: the records are of another.
    const bool current = upload == cycle_->upload && !failure_;
    if (current) {
        --cycle_->parts_being_prepared;
    }
    if (!current || superseded(part.number(), sending)) {
        lock.unlock();
        part_sent(upload, Status());
        return;
    }
    note_records(part);
    send_now(upload, part);
    deliver(lock);
}

void FileWriterImpl::send_now(const std::shared_ptr<Upload>& upload, Part part) {
    outbox_.add([keep = self(), upload, part = std::move(part)] {
        const std::uint64_t bytes = part.bytes_in_memory();
        keep->group_->begins_to_leave(bytes);
        upload->send_part(part.number(), part.body(), part.crc32c(), [keep, upload, bytes](const Status& status) {
            keep->group_->has_left(bytes);
            keep->part_sent(upload, status);
        });
    });
}

void FileWriterImpl::preparation_failed(const std::shared_ptr<Upload>& upload, Error error) {
    std::unique_lock lock(mutex_);
    if (upload == cycle_->upload) {
        fail(about_this_file(std::move(error)));
    }
    deliver(lock);
}

// The same part has been sent again meanwhile, or cut off; its preparation may have overtaken this one.
bool FileWriterImpl::superseded(int number, std::uint64_t sending) const {
    const auto latest = cycle_->latest_sending.find(number);
    return latest != cycle_->latest_sending.end() && latest->second != sending;
}

void FileWriterImpl::part_sent(const std::shared_ptr<Upload>& upload, const Status& status) {
    std::unique_lock lock(mutex_);
    if (upload == cycle_->upload && !failure_) {
        --cycle_->parts_under_way;
        if (!status) {
            fail(status.error());
        }
    }
    outbox_.add([group = group_] { group->relieve(); });
    deliver(lock);
}

// --- commit

void FileWriterImpl::commit_requested(PendingCommit commit) {
    const bool nothing_to_publish = !dirty_ || (saves_only_writes(commit.reason) && !touched_ && !committed_);
    if (nothing_to_publish) {
        outbox_.add([done = std::move(commit.done), object = committed_.value_or(CommittedObject())] { done(object); });
        return;
    }
    cycle_->commit = ActiveCommit{};
    cycle_->commit->done = pending_.take_commits();
    cycle_->commit->done.insert(cycle_->commit->done.begin(), std::move(commit.done));
}

bool FileWriterImpl::commit_step() {
    if (cycle_->commit->publishing || !cycle_ready()) {
        return false;
    }
    if (cycle_->sequencer.end() < size_) {
        return pass_to(size_);
    }
    if (!std::exchange(cycle_->commit->last_frame_cut, true)) {
        if (std::optional<FrameSequencer::RawFrame> last = cycle_->sequencer.cut()) {
            encode(std::move(*last));
        }
    }
    if (cycle_->sequencer.under_way() > 0) {
        return false;
    }
    if (cycle_->upload && can_take_upload_back()) {
        end_upload();
        forget_sent_parts();
    }
    if (!cycle_->upload && cycle_->copy.pieces.empty()) {
        put_whole();
        return false;
    }
    if (!std::exchange(cycle_->commit->parts_sent, true)) {
        begin_upload();
        send(cycle_->assembler->take_patched());
        send_last_part();
        return !failure_;
    }
    if (!last_part_sent() || cycle_->parts_under_way > 0) {
        return false;
    }
    cycle_->commit->publishing = true;
    outbox_.add([keep = self(), upload = cycle_->upload, size = cycle_->commit->stored_size] {
        upload->complete(size,
                         [keep, upload](Result<PutResponse> result) { keep->published(upload, std::move(result)); });
    });
    return false;
}

void FileWriterImpl::send_last_part() {
    if (cycle_->encoder->identity()) {
        send(cycle_->assembler->seal());
        cycle_->commit->tail_sent = true;
        cycle_->commit->stored_size = size_;
        return;
    }
    // Patched parts have been sent before.
    Part last = cycle_->assembler->take_last();
    if (!may_be_sent(last)) {
        discard(std::move(last));
        return;
    }
    outbox_.add([keep = self(), upload = cycle_->upload, encoder = cycle_->encoder, part = std::move(last)] {
        keep->prepare(encoder, part, 0, [keep, upload](Result<Part> ready) {
            if (!ready) {
                keep->preparation_failed(upload, std::move(ready.error()));
                return;
            }
            std::unique_lock lock(keep->mutex_);
            if (upload == keep->cycle_->upload && keep->cycle_->commit) {
                keep->note_records(*ready);
                keep->cycle_->commit->last_part = std::move(*ready);
            }
            keep->deliver(lock);
        });
    });
}

bool FileWriterImpl::last_part_sent() {
    if (cycle_->commit->tail_sent) {
        return true;
    }
    if (!cycle_->commit->last_part || cycle_->parts_being_prepared > 0) {
        return false;
    }
    cycle_->commit->tail_sent = true;
    Part last = std::move(*cycle_->commit->last_part);
    cycle_->commit->last_part.reset();
    // What a file held before it was cut may still be noted.
    cycle_->records.resize(static_cast<std::size_t>((size_ + kFrameSize - 1) / kFrameSize));
    Payload tail = cycle_->encoder->tail(cycle_->records, size_);
    for (const FrameRecord& record : cycle_->records) {
        cycle_->commit->stored_size += record.stored_size;
    }
    cycle_->commit->stored_size += tail.size();
    last.set_tail(std::move(tail));
    ++cycle_->parts_under_way;
    send_now(cycle_->upload, std::move(last));
    return true;
}

bool FileWriterImpl::can_take_upload_back() const {
    return size_ < kFrameSize && !cycle_->encoder->identity() && cycle_->assembler->is_whole();
}

void FileWriterImpl::put_whole() {
    cycle_->commit->publishing = true;
    Part whole = cycle_->assembler->take_whole();
    const std::shared_ptr<const FrameEncoder> made_by = cycle_->encoder;
    if (size_ < kFrameSize) {
        cycle_->encoder = environment_.codec.plain_encoder();
    }
    // Such a file was larger and has been cut: its frame is what it is composed in.
    const bool decodes =
        size_ < kFrameSize && !made_by->identity() &&
        std::any_of(whole.frames().begin(), whole.frames().end(), [](const PartFrame& frame) { return frame.encoded; });
    cycle_->upload = Upload::create(environment_.store, target(size_));
    write_id_ = cycle_->upload->write_id();
    outbox_.add(
        [keep = self(), upload = cycle_->upload, encoder = cycle_->encoder, made_by, decodes, part = std::move(whole)] {
            keep->prepare(decodes ? made_by : encoder, part, 0,
                          [keep, upload, encoder, made_by, decodes](Result<Part> ready) {
                              if (ready && decodes) {
                                  ready = decoded(*ready, *made_by, *encoder);
                              }
                              if (ready) {
                                  keep->put_prepared(upload, *encoder, std::move(*ready));
                              } else {
                                  keep->preparation_failed(upload, std::move(ready.error()));
                              }
                          });
        });
}

void FileWriterImpl::put_prepared(const std::shared_ptr<Upload>& upload, const FrameEncoder& encoder, Part whole) {
    {
        const std::lock_guard lock(mutex_);
        if (upload != cycle_->upload || !cycle_->commit) {
            // Given up. Without its tail it would be damaged, too.
            return;
        }
        if (!encoder.identity()) {
            note_records(whole);
            whole.set_tail(encoder.tail(cycle_->records, size_));
        }
        cycle_->commit->stored_size = whole.stored_size();
    }
    const std::uint64_t bytes = whole.bytes_in_memory();
    group_->begins_to_leave(bytes);
    upload->put(whole.body(), whole.crc32c(), [keep = self(), upload, bytes](Result<PutResponse> result) {
        keep->group_->has_left(bytes);
        keep->published(upload, std::move(result));
    });
}

void FileWriterImpl::published(const std::shared_ptr<Upload>& upload, Result<PutResponse> result) {
    std::unique_lock lock(mutex_);
    if (upload == cycle_->upload && !failure_) {
        if (!result) {
            fail(std::move(result.error()));
        } else {
            CommittedObject object;
            object.etag = std::move(result->etag);
            object.size = size_;
            object.stored_size = cycle_->commit->stored_size;
            object.modified =
                result->last_modified == WallTime() ? environment_.clock.wall_now() : result->last_modified;
            committed_ = object;
            committed_frames_ = CommittedFrames{cycle_->encoder, {}};
            if (!cycle_->encoder->identity()) {
                committed_frames_->records = std::move(cycle_->records);
            }
            kept_runs_.clear();
            kept_size_ = bytes_committed_ = size_;
            dirty_ = false;
            overwrite_ = Overwrite::kAllowed;
            for (CommitDone& done : cycle_->commit->done) {
                outbox_.add([done = std::move(done), object] { done(object); });
            }
            end_cycle();
        }
    }
    deliver(lock);
}

void FileWriterImpl::end_upload() {
    if (!cycle_->upload) {
        return;
    }
    ++ending_;
    outbox_.add([keep = self(), upload = std::exchange(cycle_->upload, nullptr)] {
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
