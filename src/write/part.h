// SPDX-License-Identifier: Apache-2.0
// A run of encoded frames that travels as one part.
//
// Copying a Part shares its bytes. A patch never changes a byte: it replaces slices by others, so that what is on its
// way to the store stays as it was; the frame is stale until it is encoded again.
//
// Values, not synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/staging_file.h"
#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct PartFrame {
    // In the file.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // The bytes of both are gone while the frame is staged.
    Payload raw;
    EncodedFrame encoded;
    // Of what was encoded last.
    std::uint64_t stored_size = 0;
    // `encoded` is not what the frame holds now.
    bool stale = false;
    // Counts changes of the bytes.
    std::uint32_t version = 0;
    // The bytes lie on the disk; `patches` (by offset in the frame, without overlaps) changed them since.
    std::shared_ptr<const StagedRange> staged;
    std::map<std::uint64_t, Payload> patches;
    // What encoding bytes that came back from the disk has to yield.
    std::optional<std::uint32_t> expected_crc32c;

    [[nodiscard]] std::uint64_t end() const { return offset + size; }
};

// The bytes of one frame, on their way to the disk.
struct FrameBytes {
    std::uint64_t offset = 0;
    std::uint32_t version = 0;
    Payload raw;
    std::shared_ptr<const StagedRange> staged;
};

class Part {
public:
    Part() = default;
    Part(int number, std::uint64_t file_offset, std::uint64_t stored_offset)
        : number_(number), begin_(file_offset), stored_offset_(stored_offset) {}

    void add(PartFrame frame);

    [[nodiscard]] int number() const { return number_; }
    // In the file; begin() == end() for a part without frames.
    [[nodiscard]] std::uint64_t begin() const { return begin_; }
    [[nodiscard]] std::uint64_t end() const { return frames_.empty() ? begin_ : frames_.back().end(); }
    [[nodiscard]] std::uint64_t stored_offset() const { return stored_offset_; }
    [[nodiscard]] std::uint64_t stored_size() const;
    [[nodiscard]] bool empty() const { return frames_.empty(); }
    [[nodiscard]] std::vector<PartFrame>& frames() { return frames_; }
    [[nodiscard]] const std::vector<PartFrame>& frames() const { return frames_; }

    [[nodiscard]] bool has_stale_frames() const;
    [[nodiscard]] bool has_staged_frames() const;
    // Bytes of memory its frames hold and could give up; zeros of a hole hold none.
    [[nodiscard]] std::uint64_t bytes_in_memory() const;
    [[nodiscard]] std::vector<FrameBytes> frames_in_memory() const;
    // The bytes of this frame lie on the disk now. Returns what held them in memory; nothing when the part has no such
    // frame, or it has changed since.
    [[nodiscard]] std::optional<Payload> stage(const FrameBytes& frame);

    // Replaces the bytes from `offset` of the file.
    void patch(std::uint64_t offset, const Payload& bytes);
    // Drops everything from `end` of the file on; returns the beginning of the frame that was cut, which is no longer
    // in the part. A staged frame stays, shorter.
    Payload cut(std::uint64_t end);

    // Encodes what is stale. EIO where bytes that were staged are not what they were.
    Status encode(const FrameEncoder& encoder);

    // Of a part whose frames are all in memory and not stale.
    [[nodiscard]] Payload body() const;
    [[nodiscard]] std::uint32_t crc32c() const;

private:
    int number_ = 1;
    std::uint64_t begin_ = 0;
    std::uint64_t stored_offset_ = 0;
    std::vector<PartFrame> frames_;
};

// `payload` with the bytes from `offset` on replaced by `bytes`.
[[nodiscard]] Payload with_patch(const Payload& payload, std::uint64_t offset, const Payload& bytes);

}  // namespace ckptfs
