// SPDX-License-Identifier: Apache-2.0
// The seam between a file's bytes and what is stored of them.
//
// A file is cut into frames of kFrameSize bytes (the last is shorter), each encoded on its own, so that frames are
// encoded and decoded in parallel and a read touches only the frames it needs. The encoder may add a tail (a seek
// table) behind the last frame; a layout tells a reader where each frame lies. The "stored" codec keeps every byte and
// adds nothing, so that its objects are the files themselves.
//
// Threads: encode(), frame_at() and decode() are pure and may run on any number of executor threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// One frame decodes into one pool buffer. Larger frames save 0.1 points at most.
inline constexpr std::size_t kFrameSize = BufferPool::kPayloadSize;

struct Frame {
    std::uint64_t index = 0;
    // In the file.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // In the object.
    std::uint64_t stored_offset = 0;
    std::uint64_t stored_size = 0;
};

struct EncodedFrame {
    Payload stored;
    // Of the stored bytes; parts combine it into theirs.
    std::uint32_t crc32c = 0;
    // Before encoding.
    std::uint64_t size = 0;
};

class FrameEncoder {
public:
    virtual ~FrameEncoder() = default;
    virtual Result<EncodedFrame> encode(Payload raw) const = 0;
    // What stands behind the last frame of an object that holds these frames, in order.
    virtual Payload tail(const std::vector<Frame>& frames) const = 0;
    // Marks the object as holding this container; empty for plain objects.
    [[nodiscard]] virtual Metadata metadata() const = 0;
    [[nodiscard]] virtual std::string content_encoding() const = 0;
};

class FrameLayout {
public:
    virtual ~FrameLayout() = default;
    // Of the file, not of the object.
    [[nodiscard]] virtual std::uint64_t size() const = 0;
    // The frame that holds this byte of the file; offset < size().
    [[nodiscard]] virtual Frame frame_at(std::uint64_t offset) const = 0;
    // True where a frame's stored bytes are the file's bytes, so that they need no decoding.
    [[nodiscard]] virtual bool identity() const = 0;
    // `target` holds frame.size bytes. EIO where the frame is damaged.
    virtual Status decode(const Frame& frame, const Payload& stored, MutableByteSpan target) const = 0;
};

class Codec {
public:
    virtual ~Codec() = default;
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> encoder(const std::string& key) const = 0;
    // From what the first request on an object returned: its description and its last bytes (`tail` ends at the
    // object's end and may be the whole object).
    virtual Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload& tail) const = 0;
    // Whether a description from HeadObject or a list is enough to know the file's size without its tail.
    [[nodiscard]] virtual bool size_is_known(const ObjectInfo& object) const = 0;
};

}  // namespace ckptfs
