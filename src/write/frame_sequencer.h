// SPDX-License-Identifier: Apache-2.0
// Cuts the stream of accepted bytes into frames and puts them back in order after they were encoded.
//
// Frames are encoded in parallel and come back in any order. How many are under way is bounded by the buffers that hold
// them. A frame is cut short if a commit or a lack of memory ends it.
//
// Guarded by its owner's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "write/part.h"

namespace ckptfs {

class FrameSequencer {
public:
    struct RawFrame {
        std::uint64_t sequence = 0;
        std::uint64_t offset = 0;
        Payload raw;
    };

    FrameSequencer() = default;
    // `begin`: where the stream begins in the file.
    explicit FrameSequencer(std::uint64_t begin) : begin_(begin), open_offset_(begin) {}

    // Adds bytes at the end; returns the frames that this filled, to be encoded and handed to encoded().
    [[nodiscard]] std::vector<RawFrame> append(Slice slice);
    // Cuts what is left as a short frame; empty if nothing is left.
    [[nodiscard]] std::optional<RawFrame> cut();
    void encoded(std::uint64_t sequence, PartFrame frame);
    // The next frame in the order of the file, once it has been encoded.
    [[nodiscard]] std::optional<PartFrame> next();

    [[nodiscard]] std::uint64_t end() const { return open_offset_ + open_.size(); }
    // The bytes of the frame being filled begin here.
    [[nodiscard]] std::uint64_t open_offset() const { return open_offset_; }
    [[nodiscard]] const Payload& open() const { return open_; }
    [[nodiscard]] std::uint64_t under_way() const { return next_cut_ - next_delivered_; }

    // Replaces bytes of the frame being filled; returns what it held before.
    [[nodiscard]] Payload patch(std::uint64_t offset, const Payload& bytes);
    // The stream now ends with `open`, which begins at `offset`. Nothing may be under way. Returns what was being
    // filled.
    [[nodiscard]] Payload restart(std::uint64_t offset, Payload open);

private:
    RawFrame take_open();

    std::uint64_t begin_ = 0;
    std::uint64_t open_offset_ = 0;
    Payload open_;
    std::uint64_t next_cut_ = 0;
    std::uint64_t next_delivered_ = 0;
    std::map<std::uint64_t, PartFrame> encoded_;
};

}  // namespace ckptfs
