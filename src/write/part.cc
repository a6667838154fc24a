// SPDX-License-Identifier: Apache-2.0
#include "write/part.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "write/block_encoding.h"

namespace ckptfs {
namespace {

std::uint64_t held_memory(const Payload& payload) {
    std::uint64_t bytes = 0;
    for (const Slice& slice : payload.slices()) {
        bytes += slice.owner == nullptr ? 0 : slice.bytes.size();
    }
    return bytes;
}

bool in_memory(const PartFrame& frame) {
    return frame.staged == nullptr && held_memory(frame.bytes) > 0;
}

// Later bytes win; what they leave of earlier patches stays.
void add_patch(std::map<std::uint64_t, FramePatch>& patches, std::uint64_t offset, Payload bytes) {
    FramePatch patch;
    patch.size = bytes.size();
    patch.bytes = std::move(bytes);
    const std::uint64_t end = offset + patch.size;
    auto next = patches.upper_bound(offset);
    if (next != patches.begin()) {
        --next;
    }
    while (next != patches.end() && next->first < end) {
        const std::uint64_t begin = next->first;
        const FramePatch old = next->second;
        if (begin + old.size <= offset) {
            ++next;
            continue;
        }
        next = patches.erase(next);
        if (begin < offset) {
            patches.emplace(begin, old.subrange(0, offset - begin));
        }
        if (begin + old.size > end) {
            patches.emplace(end, old.subrange(end - begin, old.size));
        }
    }
    patches.insert_or_assign(offset, std::move(patch));
}

void cut_short(PartFrame& frame, std::uint64_t size) {
    frame.size = size;
    frame.stale = true;
    ++frame.version;
    while (!frame.patches.empty() && frame.patches.rbegin()->first + frame.patches.rbegin()->second.size > size) {
        const auto last = std::prev(frame.patches.end());
        if (last->first < size) {
            last->second = last->second.subrange(0, size - last->first);
        } else {
            frame.patches.erase(last);
        }
    }
}

void replace(PartFrame& frame, Payload bytes) {
    frame.bytes = std::move(bytes);
    frame.references.clear();
    frame.encoded = false;
    frame.staged = nullptr;
    frame.crc32c.reset();
    frame.unverified = false;
    frame.patches.clear();
}

}  // namespace

FramePatch FramePatch::subrange(std::uint64_t begin, std::uint64_t end) const {
    FramePatch patch = *this;
    patch.size = end - begin;
    patch.bytes = bytes.subrange(begin, patch.size);
    patch.staged_offset = staged_offset + begin;
    return patch;
}

Payload with_patch(const Payload& payload, std::uint64_t offset, const Payload& bytes) {
    Payload patched = payload.subrange(0, offset);
    patched.append(bytes);
    patched.append(payload.subrange(offset + bytes.size(), payload.size()));
    return patched;
}

std::uint64_t PartFrame::staged_bytes() const {
    std::uint64_t sum = staged != nullptr ? staged_size : 0;
    std::vector<std::pair<const StagedRange*, std::uint64_t>> ranges;
    for (const auto& [at, patch] : patches) {
        // Pieces of one patch are neighbours, as a rule.
        if (patch.staged != nullptr && (ranges.empty() || ranges.back().first != patch.staged.get())) {
            ranges.emplace_back(patch.staged.get(), patch.staged_size);
        }
    }
    std::sort(ranges.begin(), ranges.end());
    ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
    return std::accumulate(ranges.begin(), ranges.end(), sum,
                           [](std::uint64_t total, const auto& range) { return total + range.second; });
}

std::uint64_t PartFrame::bytes_to_prepare() const {
    std::uint64_t sum = staged_bytes() + (staged != nullptr ? 0 : bytes.size());
    for (const auto& [at, patch] : patches) {
        sum += patch.staged != nullptr ? 0 : patch.size;
    }
    return sum;
}

void Part::add(PartFrame frame) {
    stored_size_ += frame.stored_size();
    bytes_to_prepare_ += frame.bytes_to_prepare();
    frames_.push_back(std::move(frame));
}

void Part::sum_up() {
    stored_size_ = bytes_to_prepare_ = 0;
    for (const PartFrame& frame : frames_) {
        stored_size_ += frame.stored_size();
        bytes_to_prepare_ += frame.bytes_to_prepare();
    }
}

bool Part::has_stale_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) { return frame.stale; });
}

bool Part::has_staged_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) {
        return frame.staged != nullptr || std::any_of(frame.patches.begin(), frame.patches.end(),
                                                      [](const auto& patch) { return patch.second.staged != nullptr; });
    });
}

std::uint64_t Part::bytes_in_memory() const {
    std::uint64_t bytes = 0;
    for (const PartFrame& frame : frames_) {
        bytes += held_memory(frame.bytes);
        for (const auto& [offset, patch] : frame.patches) {
            bytes += held_memory(patch.bytes);
        }
    }
    return bytes;
}

std::vector<FrameBytes> Part::frames_in_memory() const {
    std::vector<FrameBytes> frames;
    for (const PartFrame& frame : frames_) {
        if (in_memory(frame)) {
            frames.push_back({frame.offset, frame.version, std::nullopt, frame.bytes, nullptr, 0});
        }
        for (const auto& [offset, patch] : frame.patches) {
            if (held_memory(patch.bytes) > 0) {
                frames.push_back({frame.offset, frame.version, offset, patch.bytes, nullptr, 0});
            }
        }
    }
    return frames;
}

std::optional<Payload> Part::stage(const FrameBytes& staged) {
    const auto frame = std::find_if(frames_.begin(), frames_.end(),
                                    [&staged](const PartFrame& each) { return each.offset == staged.offset; });
    if (frame == frames_.end() || frame->version != staged.version) {
        return std::nullopt;
    }
    // The sums stay: what is staged is to be loaded again.
    if (staged.patch) {
        const auto patch = frame->patches.find(*staged.patch);
        if (patch == frame->patches.end() || patch->second.staged != nullptr) {
            return std::nullopt;
        }
        patch->second.staged = staged.staged;
        patch->second.staged_size = patch->second.size;
        patch->second.staged_offset = 0;
        patch->second.crc32c = staged.crc32c;
        return std::exchange(patch->second.bytes, Payload());
    }
    if (frame->staged != nullptr) {
        return std::nullopt;
    }
    frame->staged = staged.staged;
    frame->crc32c = frame->crc32c.value_or(staged.crc32c);
    frame->staged_size = frame->bytes.size();
    return std::exchange(frame->bytes, Payload());
}

std::uint64_t Part::blocks_to_encode(std::uint64_t offset, std::uint64_t end) const {
    return ckptfs::blocks_to_encode(frames_, offset, end);
}

void Part::patch(std::uint64_t offset, const Payload& bytes) {
    const std::uint64_t end = offset + bytes.size();
    for (PartFrame& frame : frames_) {
        const std::uint64_t from = std::max(offset, frame.offset);
        const std::uint64_t to = std::min(end, frame.end());
        if (from >= to) {
            continue;
        }
        Payload change = bytes.subrange(from - offset, to - from);
        if (change.size() == frame.size) {
            replace(frame, std::move(change));
        } else if (frame.staged != nullptr || frame.encoded) {
            add_patch(frame.patches, from - frame.offset, std::move(change));
        } else {
            frame.bytes = with_patch(frame.bytes, from - frame.offset, change);
            frame.crc32c.reset();
        }
        frame.stale = true;
        ++frame.version;
    }
    sum_up();
}

bool Part::refers_to(std::uint64_t offset, std::uint64_t end) const {
    return std::any_of(frames_.begin(), frames_.end(),
                       [=](const PartFrame& frame) { return frame.refers_to(offset, end); });
}

bool Part::stop_referring_to(std::uint64_t offset, std::uint64_t end) {
    bool any = false;
    for (PartFrame& frame : frames_) {
        if (frame.refers_to(offset, end)) {
            frame.stale = any = true;
        }
    }
    if (any) {
        sum_up();
    }
    return any;
}

Payload Part::cut(std::uint64_t end) {
    Payload rest;
    while (!frames_.empty() && frames_.back().end() > end) {
        PartFrame& last = frames_.back();
        if (last.offset < end && (last.staged != nullptr || last.encoded)) {
            cut_short(last, end - last.offset);
            break;
        }
        const PartFrame frame = std::move(last);
        frames_.pop_back();
        if (frame.offset < end) {
            rest = frame.bytes.subrange(0, end - frame.offset);
        }
    }
    sum_up();
    return rest;
}

std::size_t Part::buffers_to_encode(const FrameEncoder& encoder) const {
    const std::uint64_t blocks = encoder.identity() ? 0 : ckptfs::blocks_to_encode(frames_, 0, 0);
    return blocks == 0 ? 0 : static_cast<std::size_t>(blocks) + 1;
}

Status Part::encode(const FrameEncoder& encoder, std::vector<Buffer> buffers, std::uint64_t least) {
    Status encoded = encode_frames(encoder, std::move(buffers), least);
    sum_up();
    return encoded;
}

Status Part::encode_frames(const FrameEncoder& encoder, std::vector<Buffer> buffers, std::uint64_t least) {
    if (Status intact = verify_loaded(frames_); !intact) {
        return intact;
    }
    if (encoder.identity()) {
        return refresh_plain(frames_, encoder);
    }
    if (Status encoded = encode_blocks(frames_, encoder, std::move(buffers)); !encoded) {
        return encoded;
    }
    pad_frames(frames_, encoder, least);
    return {};
}

void Part::set_tail(Payload tail) {
    tail_ = std::move(tail);
}

Payload Part::body() const {
    Payload body;
    for (const PartFrame& frame : frames_) {
        body.append(frame.stored_bytes());
    }
    body.append(tail_);
    return body;
}

std::uint32_t Part::crc32c() const {
    std::uint32_t crc = 0;
    for (const PartFrame& frame : frames_) {
        crc = crc32c_combine(crc, frame.crc32c.value_or(0), frame.stored_bytes().size());
    }
    return tail_.empty() ? crc : crc32c_combine(crc, ckptfs::crc32c(tail_), tail_.size());
}

}  // namespace ckptfs
