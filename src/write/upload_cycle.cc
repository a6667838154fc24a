// SPDX-License-Identifier: Apache-2.0
#include "write/upload_cycle.h"

#include <utility>
#include <vector>

namespace ckptfs {

UploadCycle::~UploadCycle() {
    // Frames that are still being encoded hold the room itself.
    static_cast<void>(encoded_room_->release());
}

void UploadCycle::begin(CycleStart start) {
    encoder_ = std::move(start.encoder);
    copy_ = std::move(start.copy);
    records_ = std::move(start.records);
    history_ = encoder_->new_history(group_->history_memory());
    kept_ = environment_.files != nullptr ? environment_.files->begin() : nullptr;
    sequencer_ = FrameSequencer(copy_.fetch_from);
    assembler_.emplace(group_->plan(), static_cast<int>(copy_.pieces.size()), copy_.fetch_from, start.stored_begin,
                       !encoder_->identity());
    assembler_->set_known_size(start.known_size);
    assembler_->set_next_copy(start.next_copy);
}

void UploadCycle::release_discarded() {
    if (assembler_) {
        std::vector<Part> discarded = assembler_->take_discarded();
        if (!discarded.empty()) {
            discard(std::move(discarded));
        }
    }
}

void UploadCycle::fail_about_this_file(Error error) {
    owner_.fail(owner_.about_this_file(std::move(error)));
}

void UploadCycle::look_for_waiters() {
    owner_.outbox().add([group = group_] { group->relieve(); });
}

}  // namespace ckptfs
