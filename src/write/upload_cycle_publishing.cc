// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/text.h"
#include "write/block_encoding.h"
#include "write/upload_cycle.h"

namespace ckptfs {
namespace {

// The part as the file's bytes, if it is one frame of a container.
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

void UploadCycle::begin_commit() {
    commit_ = Commit{};
}

bool UploadCycle::commit_step(std::uint64_t size) {
    commit_->size = size;
    if (!std::exchange(commit_->last_frame_cut, true)) {
        if (std::optional<FrameSequencer::RawFrame> last = sequencer_.cut()) {
            encode(std::move(*last));
        }
    }
    if (sequencer_.under_way() > 0) {
        return false;
    }
    if (upload_ && can_take_upload_back()) {
        owner_.end_upload(take_upload());
        forget_sent_parts();
    }
    if (!upload_ && copy_.pieces.empty()) {
        put_whole();
        return false;
    }
    if (!std::exchange(commit_->parts_sent, true)) {
        begin_upload();
        if (!send(assembler_->take_patched())) {
            return false;
        }
    }
    if (!commit_->last_part_taken) {
        // The last part of a container is sent after all others. Until these have the memory that they need, what it
        // holds stays where it can go to the disk.
        if (!encoder_->identity() && parts_being_prepared_ > 0) {
            return false;
        }
        commit_->last_part_taken = true;
        return send_last_part();
    }
    if (last_part_sent() && parts_under_way_ == 0) {
        complete();
    }
    return false;
}

bool UploadCycle::send_last_part() {
    if (encoder_->identity()) {
        if (!send(assembler_->seal())) {
            return false;
        }
        commit_->tail_sent = true;
        commit_->stored_size = commit_->size;
        return true;
    }
    // Patched parts have been sent before.
    Part last = assembler_->take_last();
    if (!may_be_sent(last)) {
        discard(std::move(last));
        return false;
    }
    owner_.outbox().add([go_on = resumption(), &environment = environment_, group = group_, upload = upload_,
                         encoder = encoder_, part = std::move(last)] {
        prepare(environment, *group, encoder, part, 0, [go_on, upload](Result<Part> ready) {
            go_on([&](UploadCycle& cycle) { cycle.last_prepared(upload, std::move(ready)); });
        });
    });
    return true;
}

void UploadCycle::last_prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& part) {
    if (upload != upload_) {
        return;
    }
    if (!part) {
        fail_about_this_file(std::move(part.error()));
        return;
    }
    note_records(*part);
    commit_->last_part = std::move(*part);
}

bool UploadCycle::last_part_sent() {
    if (commit_->tail_sent) {
        return true;
    }
    if (!commit_->last_part || parts_being_prepared_ > 0) {
        return false;
    }
    commit_->tail_sent = true;
    Part last = std::move(*commit_->last_part);
    commit_->last_part.reset();
    // Records of what the file held before it was cut may still be there.
    records_.resize(static_cast<std::size_t>((commit_->size + kFrameSize - 1) / kFrameSize));
    Payload tail = encoder_->tail(records_, commit_->size);
    for (const FrameRecord& record : records_) {
        commit_->stored_size += record.stored_size;
    }
    commit_->stored_size += tail.size();
    last.set_tail(std::move(tail));
    ++parts_under_way_;
    send_now(std::move(last));
    return true;
}

void UploadCycle::complete() {
    commit_->publishing = true;
    owner_.outbox().add([go_on = resumption(), upload = upload_, size = commit_->stored_size] {
        upload->complete(size, [go_on, upload](Result<PutResponse> result) {
            go_on([&](UploadCycle& cycle) { cycle.published(upload, std::move(result)); });
        });
    });
}

bool UploadCycle::can_take_upload_back() const {
    return commit_->size < kFrameSize && !encoder_->identity() && assembler_->is_whole();
}

void UploadCycle::put_whole() {
    commit_->publishing = true;
    Part whole = assembler_->take_whole();
    const std::shared_ptr<const FrameEncoder> made_by = encoder_;
    if (commit_->size < kFrameSize) {
        encoder_ = environment_.codec.plain_encoder();
    }
    // Such a file was larger and has been cut: it is composed as a frame of the container, and then decoded.
    const bool decodes =
        commit_->size < kFrameSize && !made_by->identity() &&
        std::any_of(whole.frames().begin(), whole.frames().end(), [](const PartFrame& frame) { return frame.encoded; });
    upload_ = owner_.new_upload(encoder_->metadata(commit_->size), encoder_->content_encoding());
    owner_.outbox().add([go_on = resumption(), &environment = environment_, group = group_, upload = upload_,
                         encoder = encoder_, made_by, decodes, part = std::move(whole)] {
        prepare(environment, *group, decodes ? made_by : encoder, part, 0,
                [go_on, upload, encoder, made_by, decodes](Result<Part> ready) {
                    if (ready && decodes) {
                        ready = decoded(*ready, *made_by, *encoder);
                    }
                    go_on([&](UploadCycle& cycle) { cycle.put_prepared(upload, std::move(ready)); });
                });
    });
}

void UploadCycle::put_prepared(const std::shared_ptr<Upload>& upload, Result<Part>&& whole) {
    if (upload != upload_) {
        return;
    }
    if (!whole) {
        fail_about_this_file(std::move(whole.error()));
        return;
    }
    if (!encoder_->identity()) {
        note_records(*whole);
        whole->set_tail(encoder_->tail(records_, commit_->size));
    }
    commit_->stored_size = whole->stored_size();
    if (encoder_->identity() && commit_->stored_size != commit_->size) {
        Error error;
        error.errno_value = EIO;
        error.message =
            format("it has {} bytes instead of {}; write the file anew", commit_->stored_size, commit_->size);
        fail_about_this_file(std::move(error));
        return;
    }
    owner_.outbox().add([go_on = resumption(), group = group_, upload, part = std::move(*whole)] {
        const std::uint64_t bytes = part.bytes_in_memory();
        group->begins_to_leave(bytes);
        upload->put(part.body(), part.crc32c(), [go_on, group, upload, bytes](Result<PutResponse> result) {
            group->has_left(bytes);
            go_on([&](UploadCycle& cycle) { cycle.published(upload, std::move(result)); });
        });
    });
}

void UploadCycle::published(const std::shared_ptr<Upload>& upload, Result<PutResponse> result) {
    if (upload == upload_) {
        if (result && kept_) {
            finish_on_disk(*upload, *result);
        }
        owner_.published(std::move(result));
    }
}

void UploadCycle::finish_on_disk(const Upload& upload, const PutResponse& object) {
    ObjectInfo info;
    info.etag = object.etag;
    info.size = commit_->stored_size;
    info.metadata[kWriteIdMetadata] = upload.write_id();
    owner_.outbox().add([kept = kept_, info = std::move(info), is_encoded = !encoder_->identity(),
                         size = commit_->size] { kept->finish(info, is_encoded, size); });
}

}  // namespace ckptfs
