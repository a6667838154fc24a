// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "write/block_encoding.h"
#include "write/file_writer_impl.h"

namespace ckptfs {
namespace {

PartFrame unencoded(FrameSequencer::RawFrame raw) {
    PartFrame frame;
    frame.offset = raw.offset;
    frame.size = raw.raw.size();
    frame.bytes = std::move(raw.raw);
    frame.crc32c = crc32c(frame.bytes);
    frame.stale = true;
    return frame;
}

// With what the frame refers to.
std::size_t bytes_in_output(const EncodedFrame& encoded) {
    std::size_t bytes = encoded.record.stored_size;
    for (const FileRange& range : encoded.references) {
        bytes += range.size;
    }
    return bytes;
}

// Of a plain object.
Result<PartFrame> plain(const FrameEncoder& encoder, FrameSequencer::RawFrame raw) {
    PartFrame frame;
    frame.offset = raw.offset;
    frame.size = raw.raw.size();
    return encoder.encode(raw.raw, {}, EncodeEffort::kNormal).map([&](EncodedFrame encoded) {
        take_encoded(frame, encoder, std::move(encoded), Payload());
        return std::move(frame);
    });
}

}  // namespace

void FileWriterImpl::encode(FrameSequencer::RawFrame frame) {
    // Pieces of a block are encoded together when their part leaves; a file of less than one block stays plain.
    const bool ends_file = cycle_->commit && frame.offset > 0;
    const bool whole_block = frame.offset % kFrameSize == 0 && (frame.raw.size() == kFrameSize || ends_file);
    if (!cycle_->encoder->identity() && whole_block) {
        outbox_.add([keep = self(), cycle = WeakCycle(cycle_), frame = std::move(frame)] {
            keep->environment_.pool.take(MemoryUse::kEncode, [keep, cycle, frame](Buffer output) {
                keep->encode_into(frame, cycle, std::move(output));
            });
        });
        return;
    }
    outbox_.add([keep = self(), cycle = WeakCycle(cycle_), encoder = cycle_->encoder, frame = std::move(frame)] {
        keep->environment_.executor.post([keep, cycle, encoder, frame] {
            keep->encoded(cycle, frame.sequence, encoder->identity() ? plain(*encoder, frame) : unencoded(frame));
        });
    });
}

void FileWriterImpl::encode_into(const FrameSequencer::RawFrame& frame, const WeakCycle& cycle, Buffer output) {
    std::shared_ptr<const FrameEncoder> encoder;
    std::shared_ptr<EncodedRoom> room;
    std::shared_ptr<FrameHistory> history;
    {
        const std::lock_guard lock(mutex_);
        if (!is_current(cycle)) {
            return;
        }
        encoder = cycle_->encoder;
        room = cycle_->encoded_room;
        history = cycle_->history;
    }
    group_->begins_to_encode();
    environment_.executor.post([keep = self(), cycle, encoder, room, history, raw = frame,
                                shared_output = std::make_shared<Buffer>(std::move(output))]() mutable {
        const std::uint64_t sequence = raw.sequence;
        PartFrame frame_of_part;
        frame_of_part.offset = raw.offset;
        frame_of_part.size = raw.raw.size();
        const EncodeEffort effort = keep->group_->encode_effort();
        Result<EncodedFrame> result =
            history ? encoder->encode_in_file(raw.raw, raw.offset, *history, shared_output->bytes(), effort)
                    : encoder->encode(raw.raw, shared_output->bytes(), effort);
        keep->group_->has_encoded();
        // Freed before any writer looks for memory.
        raw.raw = Payload();
        if (!result) {
            keep->encoded(cycle, sequence, failure(std::move(result.error())));
            return;
        }
        Payload placed;
        if (result->stored) {
            shared_output->reset();
        } else {
            placed = room->place(std::move(*shared_output), bytes_in_output(*result));
        }
        take_encoded(frame_of_part, *encoder, std::move(*result), std::move(placed));
        keep->encoded(cycle, sequence, std::move(frame_of_part));
    });
}

void FileWriterImpl::encoded(const WeakCycle& cycle, std::uint64_t sequence, Result<PartFrame> result) {
    std::unique_lock lock(mutex_);
    if (!is_current(cycle)) {
        lock.unlock();
        return;
    }
    if (!result) {
        fail(about_this_file(std::move(result.error())));
    } else {
        cycle_->sequencer.encoded(sequence, std::move(*result));
        while (std::optional<PartFrame> next = cycle_->sequencer.next()) {
            send(cycle_->assembler->add(std::move(*next)));
        }
        if (cycle_->spill_when_encoded && cycle_->sequencer.under_way() == 0 && !failure_) {
            cycle_->spill_when_encoded = false;
            spill_open();
        }
    }
    deliver(lock);
}

void FileWriterImpl::prepare(std::shared_ptr<const FrameEncoder> encoder, Part part, std::uint64_t least,
                             std::function<void(Result<Part>)> then) {
    if (part.has_staged_frames() || part.buffers_to_encode(*encoder) > 0) {
        group_->staging().prepare(std::move(part), std::move(encoder), least, std::move(then));
        return;
    }
    const bool too_small = !encoder->identity() && part.stored_size() < least;
    if (!part.has_stale_frames() && !too_small) {
        then(std::move(part));
        return;
    }
    environment_.executor.post(
        [encoder = std::move(encoder), part = std::move(part), least, then = std::move(then)]() mutable {
            const Status encoded = part.encode(*encoder, {}, least);
            then(encoded ? Result<Part>(std::move(part)) : failure(encoded.error()));
        });
}

void FileWriterImpl::note_records(const Part& part) {
    for (const PartFrame& frame : part.frames()) {
        const std::uint64_t index = frame.offset / kFrameSize;
        cycle_->records.resize(std::max<std::size_t>(cycle_->records.size(), index + 1));
        cycle_->records[index] = frame.record;
    }
}

}  // namespace ckptfs
