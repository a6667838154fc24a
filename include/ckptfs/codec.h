// SPDX-License-Identifier: Apache-2.0
// The seam between a file's bytes and what is stored of them.
//
// A plain object is the file itself. An encoded object is a container: the file cut into frames of kFrameSize bytes
// (the last is shorter), each encoded on its own, so that frames are encoded and decoded in parallel and a read touches
// only the frames it needs; behind them a tail says where each lies (ckptfs-format(5)).
//
// Threads: everything here is immutable, but for who gives up tables; all functions may be called from any number of
// threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// The message for a container without its description.
inline constexpr const char* kLostDescription =
    "it looks compressed, but the metadata that says so (x-amz-meta-ckptfs-format) was lost, as by a copy without "
    "metadata; copy it again with it";

// One frame decodes into one pool buffer. Larger frames save 0.1 points at most.
inline constexpr std::size_t kFrameSize = BufferPool::kPayloadSize;
// What a frame may take in the object, so that it fits into one pool buffer.
inline constexpr std::size_t kMaxStoredFrame = BufferPool::kBufferSize;
// The end of an object that is enough to tell the size of the file in it.
inline constexpr std::uint64_t kSizeTail = 64;

struct Frame {
    std::uint64_t index = 0;
    // In the file.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // In the object.
    std::uint64_t stored_offset = 0;
    std::uint64_t stored_size = 0;
};

// What the container's tail says of one frame.
struct FrameRecord {
    std::uint32_t stored_size = 0;
    // Of the frame's bytes in the file.
    std::uint32_t checksum = 0;
    // False where it is certain that decoding takes no other bytes of the file.
    bool may_refer = true;

    friend bool operator==(const FrameRecord&, const FrameRecord&) = default;
};

// Bytes of a file.
struct FileRange {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;

    [[nodiscard]] std::uint64_t end() const { return offset + size; }
    friend bool operator==(const FileRange&, const FileRange&) = default;
};

struct EncodedFrame {
    // Shares the raw bytes where they are stored as they are; absent where the first record.stored_size bytes of the
    // output are what is stored.
    std::optional<Payload> stored;
    // Of the stored bytes; parts combine it into theirs.
    std::uint32_t crc32c = 0;
    FrameRecord record;
    // Earlier bytes of the file that decoding takes. They stand in the output behind what is stored, one range behind
    // the other.
    std::vector<FileRange> references;
};

enum class EncodeEffort : std::uint8_t {
    kNormal,
    // As little time as the container allows: something waits for the processors, not for the store.
    kLeast,
};

// What the frames of one file know of those that were encoded before them, so that later ones may refer to their bytes.
class FrameHistory {
public:
    virtual ~FrameHistory() = default;
    // These bytes of the file are about to change, or to go: no frame that is encoded from now on refers to them. No
    // frame is being encoded meanwhile.
    virtual void forget(std::uint64_t begin, std::uint64_t end) = 0;
};

class FrameEncoder {
public:
    virtual ~FrameEncoder() = default;
    // Makes plain objects: encoding needs no output, frames may have any size, and there is no tail.
    [[nodiscard]] virtual bool identity() const = 0;
    // `output` holds kMaxStoredFrame bytes, or nothing for an identity encoder.
    virtual Result<EncodedFrame> encode(const Payload& raw, MutableByteSpan output, EncodeEffort effort) const = 0;
    // For one new file, of so many bytes of memory at most; null where frames never refer to each other.
    [[nodiscard]] virtual std::unique_ptr<FrameHistory> new_history(std::uint64_t /*max_bytes*/) const {
        return nullptr;
    }
    // As encode(), of a whole frame at `offset` of the file: it may refer to bytes before it, and be referred to. Bytes
    // that are referred to must not change any more without the frame that does.
    virtual Result<EncodedFrame> encode_in_file(const Payload& raw, std::uint64_t /*offset*/, FrameHistory& /*history*/,
                                                MutableByteSpan output, EncodeEffort effort) const {
        return encode(raw, output, effort);
    }
    // The reverse: fills `raw`, whose size is that of the frame. EIO where the frame is damaged.
    // `referenced`: the bytes of references(stored), one range behind the other.
    virtual Status decode(const Payload& stored, const Payload& referenced, MutableByteSpan raw,
                          std::uint32_t checksum) const = 0;
    // Earlier bytes of the file that decoding a frame takes, which begins at `offset`; nothing for most. They are in
    // frames that refer to none. EIO where the frame is damaged, or names others.
    [[nodiscard]] virtual Result<std::vector<FileRange>> references(const Payload& /*stored*/,
                                                                    std::uint64_t /*offset*/) const {
        return std::vector<FileRange>();
    }
    // Stands before a frame that must be longer than it is; 8 bytes or more. A part must not be under 5 MiB.
    [[nodiscard]] virtual Payload padding(std::uint64_t size) const = 0;
    // What stands behind the last frame of an object that holds these, for a file of this size.
    [[nodiscard]] virtual Payload tail(const std::vector<FrameRecord>& frames, std::uint64_t size) const = 0;
    // Marks the object as a container; empty for plain objects. With the size of the file where it is known.
    [[nodiscard]] virtual Metadata metadata(std::optional<std::uint64_t> size) const = 0;
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
    // Of all frames in order; nothing for a plain object.
    [[nodiscard]] virtual const std::vector<FrameRecord>& records() const = 0;
    // As FrameEncoder says it.
    [[nodiscard]] virtual Result<std::vector<FileRange>> references(const Frame& /*frame*/,
                                                                    const Payload& /*stored*/) const {
        return std::vector<FileRange>();
    }
    // `target` holds frame.size bytes. EIO where the frame is damaged.
    virtual Status decode(const Frame& frame, const Payload& stored, const Payload& referenced,
                          MutableByteSpan target) const = 0;
};

// Memory for the seek table of one object. It is there from before the table is fetched until the object has been
// opened, or that has failed. One thread at a time.
class TableRoom {
public:
    virtual ~TableRoom() = default;
    // The memory, once; null, and it is given back, where it is not for so many bytes.
    [[nodiscard]] virtual std::shared_ptr<void> take(std::uint64_t bytes) = 0;
};

class Codec {
public:
    using RoomTaken = std::function<void(Result<std::shared_ptr<TableRoom>>)>;

    virtual ~Codec() = default;
    // For a new object under this key.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> encoder(const std::string& key) const = 0;
    // For a file too small to be worth a container.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> plain_encoder() const = 0;
    // Goes on with an object of this description, of which frames are kept.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> encoder_like(const ObjectInfo& object) const = 0;

    // How many of its last bytes layout() needs of an object, as far as these (its last) tell; EIO where they are
    // damaged. Never more than the object has.
    virtual Result<std::uint64_t> tail_needed(const ObjectInfo& object, const Payload& tail) const = 0;
    // For as many, before they are fetched: waits while others hold room. ENOMEM where the tables of all files that are
    // open leave none; null where none is counted. `taken` is called exactly once, on any thread.
    virtual void take_room(const ObjectInfo& /*object*/, std::uint64_t /*bytes*/, RoomTaken taken) const {
        taken(std::shared_ptr<TableRoom>());
    }
    // From what the first requests on an object returned: its description and its last bytes. ENOMEM where the tables
    // that are held leave no room for its own.
    virtual Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload& tail) const = 0;
    // The same in room that was taken, if any was.
    virtual Result<std::shared_ptr<const FrameLayout>> layout_in(const std::shared_ptr<TableRoom>& /*room*/,
                                                                 const ObjectInfo& object, const Payload& tail) const {
        return layout(object, tail);
    }
    // `give` drops layouts that are only kept for later; it is called before ENOMEM is said. Nothing: none is called
    // any more, nor is one under way.
    virtual void when_tables_are_short(std::function<void()> /*give*/) const {}

    // EIO where the object is described as what it cannot be: what looks at its size alone would take it for plain.
    [[nodiscard]] virtual Status check_description(const ObjectInfo& /*object*/) const { return {}; }
    // "plain", or the format that the description names (ckptfs-format(5)), known to this version or not.
    [[nodiscard]] virtual std::string format_name(const ObjectInfo& object) const = 0;
    // True for an object that is plain by its description, but ends as a container of its size does: most likely a copy
    // that lost the description. `tail`: its last kSizeTail bytes, or more.
    [[nodiscard]] virtual bool may_have_lost_description(const ObjectInfo& /*object*/, const Payload& /*tail*/) const {
        return false;
    }
    // False where the stored size alone shows that the object is plain, so that a list is enough to know the file's
    // size.
    [[nodiscard]] virtual bool may_be_encoded(std::uint64_t stored_size) const = 0;
    // The size of the file where the description tells it.
    [[nodiscard]] virtual std::optional<std::uint64_t> described_size(const ObjectInfo& object) const = 0;
    // The size of the file, from the last kSizeTail bytes.
    virtual Result<std::uint64_t> size_from_tail(const ObjectInfo& object, const Payload& tail) const = 0;
};

}  // namespace ckptfs
