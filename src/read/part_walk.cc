// SPDX-License-Identifier: Apache-2.0
#include "read/part_walk.h"

#include <algorithm>

namespace ckptfs {

namespace {

constexpr std::uint64_t kPageSize = 4096;

std::uint64_t page_of(std::uint64_t offset) {
    return offset / kPageSize * kPageSize;
}

std::uint64_t before(std::uint64_t offset, std::uint64_t distance) {
    return offset - std::min(offset, distance);
}

}  // namespace

std::vector<BlockSpan> PartWalk::on_read(std::uint64_t offset, std::uint64_t size, bool jumps, const PartOffsets& parts,
                                         std::uint64_t limit) {
    const auto next = std::lower_bound(parts.begin(), parts.end(), step_.end);
    const bool is_at_next = next != parts.end() && page_of(*next) == page_of(offset);
    if (is_of_step(offset) && !(jumps && is_at_next)) {
        step_.begin = std::min(step_.begin, offset);
        step_.end = std::max(step_.end, offset + size);
        return is_behind_ && is_step(offset) ? steps_ahead(parts, limit) : std::vector<BlockSpan>();
    }
    if (!jumps) {
        return {};
    }
    end_step();
    step_ = Step{offset, offset + size, next == parts.end() ? kNowhere : *next};
    return taken_ > 0 && may_go_to_part(offset) ? steps_ahead(parts, limit) : std::vector<BlockSpan>();
}

bool PartWalk::is_step(std::uint64_t offset) const {
    return taken_ > 0 && may_go_to_part(step_.begin) && offset >= step_.begin && offset < step_.begin + length_;
}

std::uint64_t PartWalk::end_of_step(std::uint64_t offset) const {
    return is_step(offset) ? (step_.begin + length_ - 1) / kFrameSize + 1 : 0;
}

bool PartWalk::is_of_step(std::uint64_t offset) const {
    return offset >= before(step_.begin, kApart) && offset <= step_.end + kApart;
}

void PartWalk::end_step() {
    const std::uint64_t page = page_of(step_.part);
    const bool went_there = step_.part != kNowhere && step_.begin <= page && page < step_.end &&
                            page - step_.begin <= kMaxLead && step_.end - step_.begin <= kMaxLength;
    taken_ = went_there ? taken_ + 1 : 0;
    length_ = step_.end - step_.begin;
    lead_ = went_there ? page - step_.begin : 0;
}

bool PartWalk::may_go_to_part(std::uint64_t offset) const {
    const std::uint64_t page = page_of(step_.part);
    return step_.part != kNowhere && offset >= before(page, lead_) && offset < before(page, lead_) + length_;
}

BlockSpan PartWalk::step_to(std::uint64_t part) const {
    const std::uint64_t begin = before(page_of(part), lead_);
    return BlockSpan{begin / kFrameSize, std::min((begin + length_ - 1) / kFrameSize + 1, block_count_)};
}

std::vector<BlockSpan> PartWalk::steps_ahead(const PartOffsets& parts, std::uint64_t limit) {
    is_behind_ = false;
    std::vector<BlockSpan> steps;
    std::uint64_t blocks = 0;
    std::uint64_t part = step_.part;
    for (;;) {
        const std::uint64_t read = std::max(before(page_of(part), lead_) + length_, part + 1);
        const auto next = std::lower_bound(parts.begin(), parts.end(), read);
        if (next == parts.end()) {
            return steps;
        }
        part = *next;
        const BlockSpan step = step_to(part);
        blocks += step.count();
        if (blocks > limit) {
            return steps;
        }
        steps.push_back(step);
    }
}

}  // namespace ckptfs
