// SPDX-License-Identifier: Apache-2.0
#include "write/part.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/digest.h"

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
    return frame.staged == nullptr && held_memory(frame.raw) > 0;
}

// Later bytes win; what they leave of earlier patches stays.
void add_patch(std::map<std::uint64_t, Payload>& patches, std::uint64_t offset, Payload bytes) {
    const std::uint64_t end = offset + bytes.size();
    auto next = patches.upper_bound(offset);
    if (next != patches.begin()) {
        --next;
    }
    while (next != patches.end() && next->first < end) {
        const std::uint64_t begin = next->first;
        const Payload old = next->second;
        if (begin + old.size() <= offset) {
            ++next;
            continue;
        }
        next = patches.erase(next);
        if (begin < offset) {
            patches.emplace(begin, old.subrange(0, offset - begin));
        }
        if (begin + old.size() > end) {
            patches.emplace(end, old.subrange(end - begin, old.size()));
        }
    }
    patches.insert_or_assign(offset, std::move(bytes));
}

void cut_staged(PartFrame& frame, std::uint64_t size) {
    frame.size = frame.stored_size = size;
    frame.stale = true;
    ++frame.version;
    while (!frame.patches.empty() && frame.patches.rbegin()->first + frame.patches.rbegin()->second.size() > size) {
        const auto last = std::prev(frame.patches.end());
        if (last->first < size) {
            last->second = last->second.subrange(0, size - last->first);
        } else {
            frame.patches.erase(last);
        }
    }
}

}  // namespace

Payload with_patch(const Payload& payload, std::uint64_t offset, const Payload& bytes) {
    Payload patched = payload.subrange(0, offset);
    patched.append(bytes);
    patched.append(payload.subrange(offset + bytes.size(), payload.size()));
    return patched;
}

void Part::add(PartFrame frame) {
    frame.stored_size = frame.encoded.stored.size();
    frames_.push_back(std::move(frame));
}

std::uint64_t Part::stored_size() const {
    std::uint64_t size = 0;
    for (const PartFrame& frame : frames_) {
        size += frame.stored_size;
    }
    return size;
}

bool Part::has_stale_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) { return frame.stale; });
}

bool Part::has_staged_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) { return frame.staged != nullptr; });
}

std::uint64_t Part::bytes_in_memory() const {
    std::uint64_t bytes = 0;
    for (const PartFrame& frame : frames_) {
        bytes += held_memory(frame.raw);
    }
    return bytes;
}

std::vector<FrameBytes> Part::frames_in_memory() const {
    std::vector<FrameBytes> frames;
    for (const PartFrame& frame : frames_) {
        if (in_memory(frame)) {
            frames.push_back({frame.offset, frame.version, frame.raw, nullptr});
        }
    }
    return frames;
}

std::optional<Payload> Part::stage(const FrameBytes& staged) {
    const auto frame = std::find_if(frames_.begin(), frames_.end(),
                                    [&staged](const PartFrame& each) { return each.offset == staged.offset; });
    if (frame == frames_.end() || frame->version != staged.version || frame->staged != nullptr) {
        return std::nullopt;
    }
    frame->staged = staged.staged;
    Payload freed = std::exchange(frame->raw, Payload());
    freed.append(std::exchange(frame->encoded.stored, Payload()));
    return freed;
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
            frame.raw = std::move(change);
            frame.staged = nullptr;
            frame.patches.clear();
        } else if (frame.staged != nullptr) {
            add_patch(frame.patches, from - frame.offset, std::move(change));
        } else {
            frame.raw = with_patch(frame.raw, from - frame.offset, change);
        }
        frame.stale = true;
        ++frame.version;
    }
}

Payload Part::cut(std::uint64_t end) {
    Payload rest;
    while (!frames_.empty() && frames_.back().end() > end) {
        if (frames_.back().offset < end && frames_.back().staged != nullptr) {
            cut_staged(frames_.back(), end - frames_.back().offset);
            break;
        }
        PartFrame frame = std::move(frames_.back());
        frames_.pop_back();
        if (frame.offset < end) {
            rest = frame.raw.subrange(0, end - frame.offset);
        }
    }
    return rest;
}

Status Part::encode(const FrameEncoder& encoder) {
    for (PartFrame& frame : frames_) {
        if (!frame.stale) {
            continue;
        }
        Result<EncodedFrame> encoded = encoder.encode(frame.raw);
        if (!encoded) {
            return failure(std::move(encoded.error()));
        }
        if (frame.expected_crc32c && *frame.expected_crc32c != encoded->crc32c) {
            return failure(EIO, "what was put into --staging-dir did not come back as it was; check that disk");
        }
        frame.encoded = std::move(*encoded);
        frame.stored_size = frame.encoded.stored.size();
        frame.expected_crc32c.reset();
        frame.stale = false;
    }
    return {};
}

Payload Part::body() const {
    Payload body;
    for (const PartFrame& frame : frames_) {
        body.append(frame.encoded.stored);
    }
    return body;
}

std::uint32_t Part::crc32c() const {
    std::uint32_t crc = 0;
    for (const PartFrame& frame : frames_) {
        crc = crc32c_combine(crc, frame.encoded.crc32c, frame.encoded.stored.size());
    }
    return crc;
}

}  // namespace ckptfs
