// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "write/upload_cycle.h"

namespace ckptfs {

StuckMemory UploadCycle::stuck_memory() const {
    StuckMemory stuck;
    if (!begun() || spilling_ || spill_when_encoded_) {
        return stuck;
    }
    const Part& open = assembler_->open();
    stuck.open_part = open.stored_size();
    stuck.open_in_memory = open.bytes_in_memory();
    if (stuck.open_in_memory == 0) {
        // The frame being filled, or the room left after it: small, but each holds a buffer.
        stuck.open_in_memory =
            std::max<std::uint64_t>(sequencer_.open().size(), room_.empty() && encoded_room_->empty() ? 0 : 1);
    }
    stuck.kept_in_memory = assembler_->kept_bytes();
    stuck.since = holds_since_;
    stuck.may_leave_early = group_->plan().equal_size() == 0 && sent_early_ < kSpareParts &&
                            assembler_->at_boundary() &&
                            (!open.has_staged_frames() || group_->staging().waiting() == 0);
    return stuck;
}

void UploadCycle::relieve(Relief relief) {
    if (!begun() || spilling_ || spill_when_encoded_) {
        return;
    }
    switch (relief) {
        case Relief::kSendEarly:
            send_early();
            break;
        case Relief::kSpillKept:
            spill(assembler_->kept_in_memory(), true);
            break;
        case Relief::kSpillOpen:
            spill_open();
            break;
    }
}

void UploadCycle::send_early() {
    if (assembler_->open().stored_size() >= kMinPartSize && assembler_->at_boundary()) {
        ++sent_early_;
        send(assembler_->seal());
    }
}

void UploadCycle::spill_open() {
    discard(room_.release());
    discard(encoded_room_->release());
    holds_since_ = 0;
    std::vector<FrameBytes> frames = assembler_->open().frames_in_memory();
    if (!frames.empty()) {
        spill(std::move(frames), false);
    } else if (std::optional<FrameSequencer::RawFrame> last = sequencer_.cut()) {
        spill_when_encoded_ = true;
        encode(std::move(*last));
    }
}

void UploadCycle::spill(std::vector<FrameBytes> frames, bool kept) {
    if (frames.empty()) {
        return;
    }
    spilling_ = true;
    const std::optional<int> of_open = kept ? std::nullopt : std::optional(assembler_->open().number());
    owner_.outbox().add([go_on = resumption(), group = group_, of_open, frames = std::move(frames)] {
        group->staging().store(frames,
                               [go_on, group, of_open](const std::vector<FrameBytes>& stored, const Status& status) {
                                   if (!go_on([&](UploadCycle& cycle) { cycle.spilled(of_open, stored, status); })) {
                                       group->relieve();
                                   }
                               });
    });
}

void UploadCycle::spilled(std::optional<int> of_open, const std::vector<FrameBytes>& frames, const Status& status) {
    spilling_ = false;
    for (const FrameBytes& frame : frames) {
        discard(assembler_->stage(frame));
    }
    if (!status && !of_open) {
        owner_.outbox().add([line = format("{}: parts already sent can no longer be changed: {}", owner_.shown_key(),
                                           status.error().message)] { log_warning(line); });
        send(assembler_->drop_kept());
    } else if (!status && *of_open == assembler_->open().number() && assembler_->open().bytes_in_memory() > 0) {
        // Otherwise they have been sent to the store meanwhile, where the file needs them, and free their memory that
        // way.
        fail_about_this_file(status.error());
    }
    look_for_waiters();
}

}  // namespace ckptfs
