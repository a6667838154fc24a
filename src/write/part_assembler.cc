// SPDX-License-Identifier: Apache-2.0
#include "write/part_assembler.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckptfs {
namespace {

// A MiB of zeros is a frame of 17 bytes: half a million of them would be one part, take 100 MB of memory that no budget
// counts, and all be checked at each change. This many frames take 3 MB: 16 GiB of zeros, padded to 5 MiB.
constexpr std::size_t kMostFrames = 16'384;

// Adds a range; ranges that touch are merged.
void add_range(std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t begin, std::uint64_t end) {
    auto next = ranges.upper_bound(begin);
    if (next != ranges.begin() && std::prev(next)->second >= begin) {
        --next;
    }
    while (next != ranges.end() && next->first <= end) {
        begin = std::min(begin, next->first);
        end = std::max(end, next->second);
        next = ranges.erase(next);
    }
    ranges.emplace(begin, end);
}

}  // namespace

PartAssembler::PartAssembler(const PartPlan& plan, int copied_parts, std::uint64_t begin, std::uint64_t stored_begin,
                             bool whole_blocks)
    : plan_(plan),
      first_is_copied_(copied_parts > 0),
      whole_blocks_(whole_blocks),
      open_(copied_parts + 1, begin, stored_begin) {}

bool PartAssembler::full() const {
    if (!at_boundary()) {
        return false;
    }
    const std::uint64_t planned = size_before_copy(
        plan_.part_size(open_.number(), open_.stored_offset(), known_size_, slowdown_), open_.begin(), next_copy_);
    // Frames that were cut or changed, or refer to others, may take more memory than they make of the object. A part of
    // this many bytes of the file can be padded to the least size.
    const bool takes_more = whole_blocks_ && open_.end() - open_.begin() >= kMinPartSize;
    const std::uint64_t most = std::max(planned, std::min(2 * planned, plan_.largest_part()));
    // There is no other boundary before the copied run.
    const bool too_large_later =
        next_copy_ == open_.end() + kMinPartSize && open_.bytes_to_prepare() + kMinPartSize > plan_.largest_part();
    const bool has_too_many = open_.frames().size() >= kMostFrames;
    return open_.stored_size() >= planned ||
           (takes_more && (open_.bytes_to_prepare() >= most || too_large_later || has_too_many));
}

int PartAssembler::pass_copied(int parts, std::uint64_t end, std::uint64_t stored_size) {
    const int first = open_.number();
    open_ = Part(first + parts, end, open_.stored_offset() + stored_size);
    return first;
}

std::vector<Part> PartAssembler::add(PartFrame frame) {
    std::vector<Part> parts;
    if (full()) {
        seal_into(parts);
    }
    open_.add(std::move(frame));
    if (full() && (open_.number() > 1 || known_size_ > open_.end())) {
        seal_into(parts);
    }
    return parts;
}

std::vector<Part> PartAssembler::seal() {
    std::vector<Part> parts;
    if (!open_.empty()) {
        seal_into(parts);
    }
    return parts;
}

void PartAssembler::seal_into(std::vector<Part>& parts) {
    if (last_ && last_->patched) {
        parts.push_back(last_->part);
    }
    if (last_) {
        keep_references(last_->part);
    }
    discard(last_);
    Part sealed =
        std::exchange(open_, Part(open_.number() + 1, open_.end(), open_.stored_offset() + open_.stored_size()));
    std::optional<Kept>& place = sealed.number() == 1 && !first_is_copied_ ? first_ : last_;
    place = Kept{sealed, false};
    parts.push_back(std::move(sealed));
}

void PartAssembler::keep_references(const Part& part) {
    if (!first_) {
        return;
    }
    const std::uint64_t limit = first_->part.end();
    for (const PartFrame& frame : part.frames()) {
        for (const FileRange& range : frame.references) {
            // A stale frame is encoded again without references.
            if (range.offset < limit && !frame.stale) {
                add_range(referred_to_, range.offset, range.end());
            }
        }
    }
}

bool PartAssembler::referred_to(std::uint64_t offset, std::uint64_t end) const {
    const auto next = referred_to_.lower_bound(end);
    return next != referred_to_.begin() && std::prev(next)->second > offset;
}

Part PartAssembler::take_last() {
    return std::exchange(open_, Part(open_.number() + 1, open_.end(), open_.stored_offset() + open_.stored_size()));
}

Part PartAssembler::take_whole() {
    return std::exchange(open_, Part(1, 0, 0));
}

std::vector<PartAssembler::Kept*> PartAssembler::kept() {
    std::vector<Kept*> parts;
    for (std::optional<Kept>* place : {&first_, &last_}) {
        if (*place) {
            parts.push_back(&**place);
        }
    }
    return parts;
}

std::vector<const PartAssembler::Kept*> PartAssembler::kept() const {
    std::vector<const Kept*> parts;
    for (const std::optional<Kept>* place : {&first_, &last_}) {
        if (*place) {
            parts.push_back(&**place);
        }
    }
    return parts;
}

bool PartAssembler::may_change(const Part& part, std::uint64_t offset, std::uint64_t end) const {
    const std::uint64_t from = std::max(offset, part.begin());
    const std::uint64_t to = std::max(from, std::min(end, part.end()));
    return !whole_blocks_ || (from == to && !part.refers_to(offset, end)) ||
           (part.bytes_to_prepare() + (to - from) <= plan_.largest_part() + 2 * kFrameSize &&
            part.blocks_to_encode(offset, end) <= plan_.largest_part() / kFrameSize + 1);
}

bool PartAssembler::patchable(std::uint64_t offset, std::uint64_t end) const {
    const std::vector<const Kept*> parts = kept();
    return holds(offset, end) && !referred_to(offset, end) && may_change(open_, offset, end) &&
           std::all_of(parts.begin(), parts.end(),
                       [&](const Kept* place) { return may_change(place->part, offset, end); });
}

bool PartAssembler::holds(std::uint64_t offset, std::uint64_t end) const {
    std::vector<const Part*> parts;
    for (const Kept* place : kept()) {
        parts.push_back(&place->part);
    }
    parts.push_back(&open_);
    const std::uint64_t limit = std::min(end, open_.end());
    for (const Part* part : parts) {
        for (const PartFrame& frame : part->frames()) {
            if (offset >= limit) {
                return true;
            }
            if (frame.offset <= offset && offset < frame.end()) {
                offset = frame.end();
            }
        }
    }
    return offset >= limit;
}

std::uint64_t PartAssembler::patchable_from() const {
    if (last_) {
        return last_->part.begin();
    }
    if (first_ && first_->part.end() == open_.begin()) {
        return first_->part.begin();
    }
    return open_.begin();
}

void PartAssembler::patch(std::uint64_t offset, const Payload& bytes) {
    const std::uint64_t end = offset + bytes.size();
    discarded_.push_back(open_);
    for (Kept* place : kept()) {
        if (offset < place->part.end() && end > place->part.begin()) {
            discarded_.push_back(place->part);
            place->part.patch(offset, bytes);
            place->patched = true;
        }
        if (place->part.stop_referring_to(offset, end)) {
            place->patched = true;
        }
    }
    open_.patch(offset, bytes);
    static_cast<void>(open_.stop_referring_to(offset, end));
}

std::vector<Part> PartAssembler::take_patched() {
    std::vector<Part> parts;
    for (Kept* place : kept()) {
        if (std::exchange(place->patched, false)) {
            parts.push_back(place->part);
        }
    }
    return parts;
}

bool PartAssembler::can_cut(std::uint64_t end) const {
    if (end >= open_.begin()) {
        return true;
    }
    const std::vector<const Kept*> parts = kept();
    return std::any_of(parts.begin(), parts.end(),
                       [end](const Kept* place) { return place->part.begin() <= end && end < place->part.end(); });
}

Payload PartAssembler::cut(std::uint64_t end) {
    if (end < open_.begin()) {
        std::optional<Kept>& place = last_ && last_->part.begin() <= end ? last_ : first_;
        discarded_.push_back(std::exchange(open_, std::move(place->part)));
        place.reset();
        if (!first_) {
            referred_to_.clear();
        }
        if (last_ && last_->part.number() >= open_.number()) {
            discard(last_);
        }
    }
    discarded_.push_back(open_);
    return open_.cut(end);
}

void PartAssembler::discard(std::optional<Kept>& place) {
    if (place) {
        discarded_.push_back(std::move(place->part));
        place.reset();
    }
}

std::uint64_t PartAssembler::kept_bytes() const {
    std::uint64_t bytes = 0;
    for (const Kept* place : kept()) {
        bytes += place->part.bytes_in_memory();
    }
    return bytes;
}

std::vector<FrameBytes> PartAssembler::kept_in_memory() const {
    std::vector<FrameBytes> frames;
    for (const Kept* place : kept()) {
        for (FrameBytes& frame : place->part.frames_in_memory()) {
            frames.push_back(std::move(frame));
        }
    }
    return frames;
}

Payload PartAssembler::stage(const FrameBytes& frame) {
    for (Kept* place : kept()) {
        if (std::optional<Payload> freed = place->part.stage(frame)) {
            return std::move(*freed);
        }
    }
    return open_.stage(frame).value_or(Payload());
}

std::vector<Part> PartAssembler::drop_kept() {
    std::vector<Part> parts = take_patched();
    discard(first_);
    discard(last_);
    return parts;
}

}  // namespace ckptfs
