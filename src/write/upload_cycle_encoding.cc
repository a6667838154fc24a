// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "write/block_encoding.h"
#include "write/upload_cycle.h"

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

// With the bytes that the frame refers to.
std::size_t bytes_in_output(const EncodedFrame& encoded) {
    std::size_t bytes = encoded.record.stored_size;
    for (const FileRange& range : encoded.references) {
        bytes += range.size;
    }
    return bytes;
}

// A frame of a plain object.
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

void UploadCycle::set_known_size(std::uint64_t size) {
    if (assembler_) {
        assembler_->set_known_size(size);
    }
}

Slice UploadCycle::keep(Buffer buffer, ByteSpan data) {
    Slice slice;
    discard(room_.keep(std::move(buffer), data, slice));
    return slice;
}

void UploadCycle::accept(Slice slice) {
    if (holds_since_ == 0) {
        holds_since_ = group_->next_turn();
    }
    for (FrameSequencer::RawFrame& frame : sequencer_.append(std::move(slice))) {
        encode(std::move(frame));
    }
}

// Pieces of a block are not kept on the disk: they result from a lack of memory. The first of them alone is no whole
// frame.
void UploadCycle::keep_on_disk(const FrameSequencer::RawFrame& frame) {
    if (kept_ != nullptr && frame.offset % kFrameSize == 0 && frame.offset + frame.raw.size() > kSmallestKept) {
        owner_.outbox().add(
            [kept = kept_, index = frame.offset / kFrameSize, raw = frame.raw] { kept->add(index, raw); });
    }
}

void UploadCycle::encode(FrameSequencer::RawFrame frame) {
    keep_on_disk(frame);
    // Pieces of a block are encoded together when their part is sent; a file of less than one block stays plain.
    const bool ends_file = commit_ && frame.offset > 0;
    const bool whole_block = frame.offset % kFrameSize == 0 && (frame.raw.size() == kFrameSize || ends_file);
    if (!encoder_->identity() && whole_block) {
        owner_.outbox().add([go_on = resumption(), &pool = environment_.pool, frame = std::move(frame)]() mutable {
            pool.take(MemoryUse::kEncode, [go_on, frame = std::move(frame)](Buffer output) mutable {
                go_on([&](UploadCycle& cycle) { cycle.encode_into(std::move(frame), std::move(output)); });
            });
        });
        return;
    }
    owner_.outbox().add(
        [go_on = resumption(), &executor = environment_.executor, encoder = encoder_, frame = std::move(frame)] {
            executor.post([go_on, encoder, frame] {
                Result<PartFrame> result = encoder->identity() ? plain(*encoder, frame) : unencoded(frame);
                go_on([&](UploadCycle& cycle) { cycle.encoded(frame.sequence, std::move(result)); });
            });
        });
}

void UploadCycle::encode_into(FrameSequencer::RawFrame frame, Buffer output) {
    auto task = [go_on = resumption(), group = group_, encoder = encoder_, room = encoded_room_, history = history_,
                 raw = std::move(frame), shared_output = std::make_shared<Buffer>(std::move(output))]() mutable {
        const std::uint64_t sequence = raw.sequence;
        PartFrame frame_of_part;
        frame_of_part.offset = raw.offset;
        frame_of_part.size = raw.raw.size();
        const EncodeEffort effort = group->encode_effort();
        Result<EncodedFrame> encoded =
            history ? encoder->encode_in_file(raw.raw, raw.offset, *history, shared_output->bytes(), effort)
                    : encoder->encode(raw.raw, shared_output->bytes(), effort);
        group->has_encoded();
        // Freed before any writer looks for memory.
        raw.raw = Payload();
        Result<PartFrame> result = encoded.map([&](EncodedFrame& good) {
            Payload placed;
            if (good.stored) {
                shared_output->reset();
            } else {
                placed = room->place(std::move(*shared_output), bytes_in_output(good));
            }
            take_encoded(frame_of_part, *encoder, std::move(good), std::move(placed));
            return std::move(frame_of_part);
        });
        go_on([&](UploadCycle& cycle) { cycle.encoded(sequence, std::move(result)); });
    };
    owner_.outbox().add([group = group_, &executor = environment_.executor, task = std::move(task)]() mutable {
        group->begins_to_encode();
        executor.post(std::move(task));
    });
}

void UploadCycle::encoded(std::uint64_t sequence, Result<PartFrame>&& result) {
    if (!result) {
        fail_about_this_file(std::move(result.error()));
        return;
    }
    sequencer_.encoded(sequence, std::move(*result));
    assembler_->set_slowdown(group_->slowdown(environment_.store));
    while (std::optional<PartFrame> next = sequencer_.next()) {
        if (!send(assembler_->add(std::move(*next)))) {
            return;
        }
    }
    // What has come does not wait for the rest: that may wait for memory which this holds.
    if (spill_when_encoded_ && (sequencer_.under_way() == 0 || assembler_->open().bytes_in_memory() > 0)) {
        spill_when_encoded_ = false;
        spill_open();
    }
}

void UploadCycle::note_records(const Part& part) {
    for (const PartFrame& frame : part.frames()) {
        const std::uint64_t index = frame.offset / kFrameSize;
        records_.resize(std::max<std::size_t>(records_.size(), index + 1));
        records_[index] = frame.record;
    }
}

}  // namespace ckptfs
