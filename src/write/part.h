// SPDX-License-Identifier: Apache-2.0
// A run of encoded frames that is sent as one part.
//
// Copying a Part shares its bytes. A patch never changes a byte: it replaces slices by others or waits beside them, so
// that what is on its way to the store stays as it was; the frame is stale until it is encoded again.
//
// Values, not synchronised.
#pragma once

#include <algorithm>
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

// A change of bytes that are staged or encoded. It can be staged itself.
struct FramePatch {
    std::uint64_t size = 0;
    // What is in memory; nothing while it is staged.
    Payload bytes;
    // If the patch is staged, it is the `size` bytes from `staged_offset` of what is staged.
    std::shared_ptr<const StagedRange> staged;
    std::uint64_t staged_size = 0;
    std::uint64_t staged_offset = 0;
    // Checksum of all that is staged.
    std::uint32_t crc32c = 0;

    [[nodiscard]] FramePatch subrange(std::uint64_t begin, std::uint64_t end) const;
};

struct PartFrame {
    // Position in the file.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // What is in memory; nothing while the frame is staged.
    Payload bytes;
    // `bytes` (or what is staged) are a container's frame that decodes to `encoded_size` bytes; else they are the
    // file's. The first `size` bytes count.
    bool encoded = false;
    std::uint64_t encoded_size = 0;
    // Checksum of stored_bytes(), or of what is staged of them; absent for bytes that changed in memory.
    std::optional<std::uint32_t> crc32c;
    // The record of what was encoded last.
    FrameRecord record;
    // Earlier bytes of the file that the encoded frame refers to. As long as the frame may change they are kept with
    // it, at the end of `bytes`: what was sent to the store cannot be read before the file is committed.
    std::vector<FileRange> references;
    // The stored bytes are missing or outdated: the frame has to be encoded before it is sent.
    bool stale = false;
    // Counts changes of the bytes.
    std::uint32_t version = 0;
    std::shared_ptr<const StagedRange> staged;
    std::uint64_t staged_size = 0;
    // Changes (by offset in the frame, without overlaps) of bytes that are staged or encoded.
    std::map<std::uint64_t, FramePatch> patches;
    // Just read back from the disk, and not yet compared with `crc32c`.
    bool unverified = false;

    [[nodiscard]] std::uint64_t end() const { return offset + size; }
    // Bytes to be read back: a patch that later ones have cut in pieces is read once.
    [[nodiscard]] std::uint64_t staged_bytes() const;
    // These two are for a frame in memory.
    [[nodiscard]] Payload stored_bytes() const {
        return references.empty() ? bytes : bytes.subrange(0, record.stored_size);
    }
    [[nodiscard]] Payload referenced_bytes() const {
        return references.empty() ? Payload() : bytes.subrange(record.stored_size, bytes.size());
    }
    [[nodiscard]] bool refers_to(std::uint64_t begin, std::uint64_t end) const {
        return std::any_of(references.begin(), references.end(),
                           [=](const FileRange& range) { return range.offset < end && range.end() > begin; });
    }
    // Bytes that the frame takes in the object, as far as is known.
    [[nodiscard]] std::uint64_t stored_size() const { return stale ? size : record.stored_size; }
    // Bytes of memory to load what is staged and to keep what is not.
    [[nodiscard]] std::uint64_t bytes_to_prepare() const;
};

// The bytes of one frame, or of one of its patches, on their way to the disk.
struct FrameBytes {
    std::uint64_t offset = 0;
    std::uint32_t version = 0;
    // Offset of the patch in the frame; absent for the frame's own bytes.
    std::optional<std::uint64_t> patch;
    Payload bytes;
    std::shared_ptr<const StagedRange> staged;
    // Checksum of what is staged.
    std::uint32_t crc32c = 0;
};

class Part {
public:
    Part() = default;
    Part(int number, std::uint64_t file_offset, std::uint64_t stored_offset)
        : number_(number), begin_(file_offset), stored_offset_(stored_offset) {}

    void add(PartFrame frame);

    [[nodiscard]] int number() const { return number_; }
    // Position in the file; begin() == end() for a part without frames.
    [[nodiscard]] std::uint64_t begin() const { return begin_; }
    [[nodiscard]] std::uint64_t end() const { return frames_.empty() ? begin_ : frames_.back().end(); }
    [[nodiscard]] std::uint64_t stored_offset() const { return stored_offset_; }
    [[nodiscard]] std::uint64_t stored_size() const { return stored_size_ + tail_.size(); }
    [[nodiscard]] bool empty() const { return frames_.empty(); }
    // For callers that load what is staged. They make no other change, because sums over the frames are kept here.
    [[nodiscard]] std::vector<PartFrame>& frames() { return frames_; }
    [[nodiscard]] const std::vector<PartFrame>& frames() const { return frames_; }

    [[nodiscard]] bool has_stale_frames() const;
    [[nodiscard]] bool has_staged_frames() const;
    // Bytes of memory its frames hold and could give up; zeros of a hole hold none.
    [[nodiscard]] std::uint64_t bytes_in_memory() const;
    [[nodiscard]] std::vector<FrameBytes> frames_in_memory() const;
    // These bytes are on the disk now. Returns what held them in memory; nothing if the part has no such frame, or it
    // has changed since.
    [[nodiscard]] std::optional<Payload> stage(const FrameBytes& frame);

    // Bytes of memory to load all that is staged, and to keep what is not.
    [[nodiscard]] std::uint64_t bytes_to_prepare() const { return bytes_to_prepare_; }
    // How many blocks encode() has to encode once these bytes of the file have been replaced, in this part or before.
    [[nodiscard]] std::uint64_t blocks_to_encode(std::uint64_t offset, std::uint64_t end) const;
    // Replaces the bytes from `offset` of the file.
    void patch(std::uint64_t offset, const Payload& bytes);
    [[nodiscard]] bool refers_to(std::uint64_t offset, std::uint64_t end) const;
    // These bytes of the file change: frames that refer to them are encoded again. True if there are any.
    bool stop_referring_to(std::uint64_t offset, std::uint64_t end);
    // Drops everything from `end` of the file on; returns the beginning of the frame that was cut, which is no longer
    // in the part. A frame that is staged or encoded stays, shorter.
    Payload cut(std::uint64_t end);

    // How many buffers encode() takes.
    [[nodiscard]] std::size_t buffers_to_encode(const FrameEncoder& encoder) const;
    // Encodes what is stale; frames that share kFrameSize bytes of the file become one in a container. All bytes are in
    // memory. A part below `least` bytes is padded. EIO if bytes that were staged are not what they were.
    Status encode(const FrameEncoder& encoder, std::vector<Buffer> buffers, std::uint64_t least);
    // Sets what follows the last frame of the object.
    void set_tail(Payload tail);

    // These two are for a part whose frames are all in memory and not stale.
    [[nodiscard]] Payload body() const;
    [[nodiscard]] std::uint32_t crc32c() const;

private:
    Status encode_frames(const FrameEncoder& encoder, std::vector<Buffer> buffers, std::uint64_t least);
    // Adds up what the frames take.
    void sum_up();

    int number_ = 1;
    std::uint64_t begin_ = 0;
    std::uint64_t stored_offset_ = 0;
    std::vector<PartFrame> frames_;
    // Sums over all frames. They are needed for each frame that is added, and there may be thousands.
    std::uint64_t stored_size_ = 0;
    std::uint64_t bytes_to_prepare_ = 0;
    Payload tail_;
};

// `payload` with the bytes from `offset` on replaced by `bytes`.
[[nodiscard]] Payload with_patch(const Payload& payload, std::uint64_t offset, const Payload& bytes);

}  // namespace ckptfs
