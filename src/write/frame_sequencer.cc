// SPDX-License-Identifier: Apache-2.0
#include "write/frame_sequencer.h"

#include <algorithm>

namespace ckptfs {

std::vector<FrameSequencer::RawFrame> FrameSequencer::append(Slice slice) {
    std::vector<RawFrame> full;
    while (!slice.bytes.empty()) {
        // The frame after one that was cut short is short, too, so that equal parts can be made of frames.
        const std::uint64_t room = kFrameSize - (end() - begin_) % kFrameSize;
        const std::uint64_t take = std::min<std::uint64_t>(room, slice.bytes.size());
        open_.append(Slice{slice.owner, slice.bytes.first(take)});
        slice.bytes = slice.bytes.subspan(take);
        if ((end() - begin_) % kFrameSize == 0) {
            full.push_back(take_open());
        }
    }
    return full;
}

std::optional<FrameSequencer::RawFrame> FrameSequencer::cut() {
    if (open_.empty()) {
        return std::nullopt;
    }
    return take_open();
}

FrameSequencer::RawFrame FrameSequencer::take_open() {
    RawFrame frame;
    frame.sequence = next_cut_++;
    frame.offset = open_offset_;
    frame.raw = std::exchange(open_, Payload());
    open_offset_ += frame.raw.size();
    return frame;
}

void FrameSequencer::encoded(std::uint64_t sequence, PartFrame frame) {
    encoded_.emplace(sequence, std::move(frame));
}

std::optional<PartFrame> FrameSequencer::next() {
    const auto found = encoded_.find(next_delivered_);
    if (found == encoded_.end()) {
        return std::nullopt;
    }
    PartFrame frame = std::move(found->second);
    encoded_.erase(found);
    ++next_delivered_;
    return frame;
}

Payload FrameSequencer::patch(std::uint64_t offset, const Payload& bytes) {
    return std::exchange(open_, with_patch(open_, offset - open_offset_, bytes));
}

Payload FrameSequencer::restart(std::uint64_t offset, Payload open) {
    open_offset_ = offset;
    return std::exchange(open_, std::move(open));
}

}  // namespace ckptfs
