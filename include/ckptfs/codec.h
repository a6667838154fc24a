// SPDX-License-Identifier: Apache-2.0
// The interface between a file's bytes and the bytes that are stored for it.
//
// A plain object is the file itself. An encoded object is a container: the file cut into frames of kFrameSize bytes
// (the last is shorter), each encoded on its own, so that frames are encoded and decoded in parallel and a read touches
// only the frames it needs; after them, a tail says where each lies (ckptfs-format(5)).
//
// Threads: everything here is immutable, except a FrameHistory, a TableRoom, and the callback of
// when_tables_are_short(). All functions may be called from any number of threads at once, unless their comment says
// otherwise.
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

// The message for a container whose metadata was lost.
inline constexpr const char* kLostDescription =
    "it looks compressed, but the metadata that says so (x-amz-meta-ckptfs-format) was lost, as by a copy without "
    "metadata; copy it again with it";

// One frame decodes into one pool buffer. Larger frames save 0.1 points at most.
inline constexpr std::size_t kFrameSize = BufferPool::kPayloadSize;
// Most bytes that a frame may take in the object: it fits into one pool buffer.
inline constexpr std::size_t kMaxStoredFrame = BufferPool::kBufferSize;
// How many bytes at the end of a container tell the size of the file.
inline constexpr std::uint64_t kSizeTail = 64;

struct Frame {
    std::uint64_t index = 0;
    // Place in the file, in bytes.
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    // Place in the object, in bytes.
    std::uint64_t stored_offset = 0;
    std::uint64_t stored_size = 0;
};

// A frame's entry in the tail of its container.
struct FrameRecord {
    std::uint32_t stored_size = 0;
    // Checksum of the frame's decoded bytes.
    std::uint32_t checksum = 0;
    // False if it is certain that decoding needs no other bytes of the file.
    bool may_refer = true;

    friend bool operator==(const FrameRecord&, const FrameRecord&) = default;
};

// A range of a file's bytes.
struct FileRange {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;

    [[nodiscard]] std::uint64_t end() const { return offset + size; }
    friend bool operator==(const FileRange&, const FileRange&) = default;
};

struct EncodedFrame {
    // Shares the raw bytes if they are stored unencoded; absent if the stored bytes are the first record.stored_size
    // bytes of the output.
    std::optional<Payload> stored;
    // CRC-32C of the stored bytes; combined into that of the part.
    std::uint32_t crc32c = 0;
    FrameRecord record;
    // Earlier ranges of the file that decoding needs. In the output, their bytes follow the stored bytes, one range
    // after the other.
    std::vector<FileRange> references;
};

enum class EncodeEffort : std::uint8_t {
    kNormal,
    // As little CPU time as the container allows: the processors are the bottleneck, not the store.
    kLeast,
};

// What is known of the frames encoded so far in one file, so that later frames may refer to their bytes.
class FrameHistory {
public:
    virtual ~FrameHistory() = default;
    // Called before the bytes [begin, end) of the file change or are removed: no frame that is encoded from now on
    // refers to them. Must not run while a frame is being encoded.
    virtual void forget(std::uint64_t begin, std::uint64_t end) = 0;
};

class FrameEncoder {
public:
    virtual ~FrameEncoder() = default;
    // True if it makes plain objects: encoding needs no output, frames may have any size, and there is no tail.
    [[nodiscard]] virtual bool identity() const = 0;
    // `output` holds kMaxStoredFrame bytes, or nothing for an identity encoder.
    virtual Result<EncodedFrame> encode(const Payload& raw, MutableByteSpan output, EncodeEffort effort) const = 0;
    // A history for one new file that takes at most `max_bytes` of memory; null if frames never refer to each other.
    [[nodiscard]] virtual std::unique_ptr<FrameHistory> new_history(std::uint64_t /*max_bytes*/) const {
        return nullptr;
    }
    // Like encode(), for a whole frame at `offset` of the file: it may refer to earlier bytes, and later frames may
    // refer to it. Bytes that a frame refers to must not change unless that frame is encoded again.
    virtual Result<EncodedFrame> encode_in_file(const Payload& raw, std::uint64_t /*offset*/, FrameHistory& /*history*/,
                                                MutableByteSpan output, EncodeEffort effort) const {
        return encode(raw, output, effort);
    }
    // The reverse of encode(): fills `raw`, whose size is that of the frame. EIO if the frame is damaged.
    // `referenced`: the bytes of the ranges that references() returns, one range after the other.
    virtual Status decode(const Payload& stored, const Payload& referenced, MutableByteSpan raw,
                          std::uint32_t checksum) const = 0;
    // Earlier ranges of the file that decoding the frame at `offset` needs; empty for most frames. They lie in frames
    // that refer to none. EIO if the frame is damaged, or refers to bytes that are not before it.
    [[nodiscard]] virtual Result<std::vector<FileRange>> references(const Payload& /*stored*/,
                                                                    std::uint64_t /*offset*/) const {
        return std::vector<FileRange>();
    }
    // Padding of `size` bytes (8 or more) to put before a frame, because a part must not be under 5 MiB; empty for
    // plain objects.
    [[nodiscard]] virtual Payload padding(std::uint64_t size) const = 0;
    // The bytes after the last frame of an object that holds `frames`, for a file of `size` bytes.
    [[nodiscard]] virtual Payload tail(const std::vector<FrameRecord>& frames, std::uint64_t size) const = 0;
    // Metadata that marks the object as a container, with the size of the file if it is known; empty for plain objects.
    [[nodiscard]] virtual Metadata metadata(std::optional<std::uint64_t> size) const = 0;
    [[nodiscard]] virtual std::string content_encoding() const = 0;
};

class FrameLayout {
public:
    virtual ~FrameLayout() = default;
    // Size of the file, not of the object.
    [[nodiscard]] virtual std::uint64_t size() const = 0;
    // The frame that holds this byte of the file; offset < size().
    [[nodiscard]] virtual Frame frame_at(std::uint64_t offset) const = 0;
    // True if the stored bytes of a frame are the file's bytes, so that they need no decoding.
    [[nodiscard]] virtual bool identity() const = 0;
    // The records of all frames, in order; empty for a plain object.
    [[nodiscard]] virtual const std::vector<FrameRecord>& records() const = 0;
    // Like FrameEncoder::references().
    [[nodiscard]] virtual Result<std::vector<FileRange>> references(const Frame& /*frame*/,
                                                                    const Payload& /*stored*/) const {
        return std::vector<FileRange>();
    }
    // `target` holds frame.size bytes. EIO if the frame is damaged.
    virtual Status decode(const Frame& frame, const Payload& stored, const Payload& referenced,
                          MutableByteSpan target) const = 0;
};

// Memory for the seek table of one object, held from before the table is fetched until the object has been opened, or
// opening it has failed. Used by one thread at a time.
class TableRoom {
public:
    virtual ~TableRoom() = default;
    // Hands over the memory, once. Null if it was not taken for exactly `bytes`; the memory is then given back.
    [[nodiscard]] virtual std::shared_ptr<void> take(std::uint64_t bytes) = 0;
};

class Codec {
public:
    using RoomTaken = std::function<void(Result<std::shared_ptr<TableRoom>>)>;

    virtual ~Codec() = default;
    // Encoder for a new object under `key`.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> encoder(const std::string& key) const = 0;
    // Encoder for a file too small to be worth a container.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> plain_encoder() const = 0;
    // Encoder that continues an object of this description, of which frames are kept.
    [[nodiscard]] virtual std::shared_ptr<const FrameEncoder> encoder_like(const ObjectInfo& object) const = 0;

    // How many of the object's last bytes layout() needs, as far as `tail`, its last bytes, tells; never more than the
    // object has. EIO if they are damaged, EFBIG if the seek table is too large for --max-memory.
    virtual Result<std::uint64_t> tail_needed(const ObjectInfo& object, const Payload& tail) const = 0;
    // Takes room for a table of `bytes` bytes, before it is fetched; waits while others that open files hold room.
    // ENOMEM if the tables of all open files leave none; null if this codec does not count tables. `taken` is called
    // exactly once, on any thread.
    virtual void take_room(const ObjectInfo& /*object*/, std::uint64_t /*bytes*/, RoomTaken taken) const {
        taken(std::shared_ptr<TableRoom>());
    }
    // The layout, from what the first requests on an object returned: its description and its last bytes. ENOMEM if the
    // tables that are held leave no room for this one.
    virtual Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload& tail) const = 0;
    // Like layout(), in room that take_room() has passed; `room` may be null.
    virtual Result<std::shared_ptr<const FrameLayout>> layout_in(const std::shared_ptr<TableRoom>& /*room*/,
                                                                 const ObjectInfo& object, const Payload& tail) const {
        return layout(object, tail);
    }
    // `give` drops layouts that are only kept for later; it is called before ENOMEM is returned. After a call with an
    // empty function, none is called any more, and none is running.
    virtual void when_tables_are_short(std::function<void()> /*give*/) const {}

    // EIO if the description names an unknown format, or a container although the object's size is not that of one:
    // code that looks at the size alone would treat the object as plain.
    [[nodiscard]] virtual Status check_description(const ObjectInfo& /*object*/) const { return {}; }
    // "plain", or the format that the description names (ckptfs-format(5)), known to this version or not.
    [[nodiscard]] virtual std::string format_name(const ObjectInfo& object) const = 0;
    // True for an object that is plain by its description, but ends like a container of its size: most likely a copy
    // that lost the description. `tail`: its last kSizeTail bytes, or more.
    [[nodiscard]] virtual bool may_have_lost_description(const ObjectInfo& /*object*/, const Payload& /*tail*/) const {
        return false;
    }
    // False if the stored size alone shows that the object is plain, so that a listing is enough to know the file's
    // size.
    [[nodiscard]] virtual bool may_be_encoded(std::uint64_t stored_size) const = 0;
    // The size of the file if the description tells it; for a plain object, the size of the object.
    [[nodiscard]] virtual std::optional<std::uint64_t> described_size(const ObjectInfo& object) const = 0;
    // The size of the file, from the last kSizeTail bytes.
    virtual Result<std::uint64_t> size_from_tail(const ObjectInfo& object, const Payload& tail) const = 0;
};

}  // namespace ckptfs
