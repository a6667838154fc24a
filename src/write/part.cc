// SPDX-License-Identifier: Apache-2.0
#include "write/part.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"

namespace ckptfs {

Payload with_patch(const Payload& payload, std::uint64_t offset, const Payload& bytes) {
    Payload patched = payload.subrange(0, offset);
    patched.append(bytes);
    patched.append(payload.subrange(offset + bytes.size(), payload.size()));
    return patched;
}

void Part::add(PartFrame frame) {
    frames_.push_back(std::move(frame));
}

std::uint64_t Part::stored_size() const {
    std::uint64_t size = 0;
    for (const PartFrame& frame : frames_) {
        size += frame.stored_size();
    }
    return size;
}

bool Part::has_stale_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) { return frame.stale; });
}

bool Part::has_staged_frames() const {
    return std::any_of(frames_.begin(), frames_.end(), [](const PartFrame& frame) { return frame.staged.has_value(); });
}

std::uint64_t Part::bytes_in_memory() const {
    std::uint64_t bytes = 0;
    for (const PartFrame& frame : frames_) {
        bytes += frame.raw.size();
    }
    return bytes;
}

void Part::patch(std::uint64_t offset, const Payload& bytes) {
    const std::uint64_t end = offset + bytes.size();
    for (PartFrame& frame : frames_) {
        const std::uint64_t from = std::max(offset, frame.offset);
        const std::uint64_t to = std::min(end, frame.end());
        if (from >= to) {
            continue;
        }
        frame.raw = with_patch(frame.raw, from - frame.offset, bytes.subrange(from - offset, to - from));
        frame.stale = true;
        ++frame.version;
    }
}

Payload Part::cut(std::uint64_t end) {
    Payload rest;
    while (!frames_.empty() && frames_.back().end() > end) {
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
        frame.encoded = std::move(*encoded);
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
