// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "write/file_writer_impl.h"

namespace ckptfs {

StuckMemory FileWriterImpl::stuck_memory() const {
    const std::lock_guard lock(mutex_);
    StuckMemory stuck;
    if (failure_ || !cycle_->assembler || cycle_->spilling || cycle_->spill_when_encoded) {
        return stuck;
    }
    const Part& open = cycle_->assembler->open();
    stuck.open_part = open.stored_size();
    stuck.open_in_memory = open.bytes_in_memory();
    if (stuck.open_in_memory == 0) {
        // The frame being filled, or the room left behind it: small, but each holds a buffer.
        stuck.open_in_memory = std::max<std::uint64_t>(cycle_->sequencer.open().size(),
                                                       cycle_->room.empty() && cycle_->encoded_room->empty() ? 0 : 1);
    }
    stuck.kept_in_memory = cycle_->assembler->kept_bytes();
    stuck.since = cycle_->holds_since;
    stuck.may_leave_early = group_->plan().equal_size() == 0 && cycle_->sent_early < kSpareParts &&
                            cycle_->assembler->at_boundary() &&
                            (!open.has_staged_frames() || group_->staging().waiting() == 0);
    return stuck;
}

void FileWriterImpl::relieve(Relief relief) {
    const auto keep = self();
    std::unique_lock lock(mutex_);
    if (!failure_ && cycle_->assembler && !cycle_->spilling && !cycle_->spill_when_encoded) {
        switch (relief) {
            case Relief::kSendEarly:
                send_early();
                break;
            case Relief::kSpillKept:
                spill(cycle_->assembler->kept_in_memory(), true);
                break;
            case Relief::kSpillOpen:
                spill_open();
                break;
        }
    }
    deliver(lock);
}

void FileWriterImpl::send_early() {
    if (cycle_->assembler->open().stored_size() >= kMinPartSize && cycle_->assembler->at_boundary()) {
        ++cycle_->sent_early;
        send(cycle_->assembler->seal());
    }
}

void FileWriterImpl::spill_open() {
    discard(cycle_->room.release());
    discard(cycle_->encoded_room->release());
    cycle_->holds_since = 0;
    std::vector<FrameBytes> frames = cycle_->assembler->open().frames_in_memory();
    if (!frames.empty()) {
        spill(std::move(frames), false);
    } else if (std::optional<FrameSequencer::RawFrame> last = cycle_->sequencer.cut()) {
        cycle_->spill_when_encoded = true;
        encode(std::move(*last));
    }
}

void FileWriterImpl::spill(std::vector<FrameBytes> frames, bool kept) {
    if (frames.empty()) {
        return;
    }
    cycle_->spilling = true;
    outbox_.add([keep = self(), cycle = WeakCycle(cycle_), kept, frames = std::move(frames)] {
        keep->group_->staging().store(frames,
                                      [keep, cycle, kept](const std::vector<FrameBytes>& stored, const Status& status) {
                                          keep->spilled(cycle, kept, stored, status);
                                      });
    });
}

void FileWriterImpl::spilled(const WeakCycle& cycle, bool kept, const std::vector<FrameBytes>& frames,
                             const Status& status) {
    std::unique_lock lock(mutex_);
    if (is_current(cycle)) {
        cycle_->spilling = false;
        for (const FrameBytes& frame : frames) {
            discard(cycle_->assembler->stage(frame));
        }
        if (!status && kept) {
            outbox_.add([line = format("{}: what was sent of it cannot be changed any more: {}", escaped(key_),
                                       status.error().message)] { log_warning(line); });
            send(cycle_->assembler->drop_kept());
        } else if (!status) {
            fail(about_this_file(status.error()));
        }
    }
    outbox_.add([group = group_] { group->relieve(); });
    deliver(lock);
}

Error FileWriterImpl::about_this_file(Error error) const {
    error.message = format("write {}: {}", escaped(key_), error.message);
    return error;
}

}  // namespace ckptfs
