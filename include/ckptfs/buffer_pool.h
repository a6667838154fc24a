// SPDX-License-Identifier: Apache-2.0
// The one memory budget (--max-memory), handed out as equal buffers.
//
// Everything that holds file data holds it in these buffers: requests received from the kernel, parts that wait or are
// in flight, blocks read ahead. Equal buffers cannot fragment and are reused, because the first touch of memory is
// slow.
// Each use has a reserve that the others cannot take, so that a full write queue cannot stop a read and neither can
// stop a commit. A full budget makes the taker wait; it never fails and never grows.
//
// Ownership: a Buffer belongs to its holder and goes back to the pool when destroyed. share() turns it into
// shared read-only ownership. The pool outlives every buffer.
// Threads: all functions may be called from any thread. Callbacks run without any lock of the pool held, on a
// thread of the pool's choosing, or inline when a buffer is free; they must be short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "ckptfs/bytes.h"

namespace ckptfs {

enum class MemoryUse : std::uint8_t {
    kReceive,  // requests being read from the kernel, and writes that are parked
    kWrite,    // file data accepted and not yet in the store
    kRead,     // blocks being fetched or cached
    kCommit,   // what a commit needs to finish: spilled or committed bytes that are sent again
    kEncode,   // output of the encoder: taken before a frame is encoded, so that encoding never waits
};
inline constexpr std::size_t kMemoryUses = 5;

class BufferPool;

class Buffer {
public:
    Buffer() = default;
    Buffer(BufferPool* pool, std::byte* data, MemoryUse use) : pool_(pool), data_(data), use_(use) {}
    Buffer(Buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)), use_(other.use_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        if (this != &other) {
            reset();
            pool_ = std::exchange(other.pool_, nullptr);
            data_ = std::exchange(other.data_, nullptr);
            use_ = other.use_;
        }
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { reset(); }

    [[nodiscard]] explicit operator bool() const { return data_ != nullptr; }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] inline std::size_t size() const;
    [[nodiscard]] MutableByteSpan bytes() const { return {data_, size()}; }
    [[nodiscard]] MemoryUse use() const { return use_; }

    inline void reset();
    // Hands the buffer to shared owners; it returns to the pool with the last of them.
    [[nodiscard]] std::shared_ptr<const void> share() && { return std::make_shared<const Buffer>(std::move(*this)); }

private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    MemoryUse use_ = MemoryUse::kReceive;
};

// One write as it came from the kernel: `data` lies inside `buffer`, so that large writes need no copy.
struct WriteData {
    Buffer buffer;
    ByteSpan data;
};

struct PoolUsage {
    std::size_t total_buffers = 0;
    std::size_t free_buffers = 0;
    // Buffers with physical memory behind them, in use or not.
    std::size_t touched_buffers = 0;
    std::size_t in_use[kMemoryUses] = {};
    std::size_t peak_in_use = 0;
    std::size_t waiting[kMemoryUses] = {};
    // By use: how many buffers no other use can take from it (`reserve`), and how many it may take at most (`cap`).
    std::size_t reserve[kMemoryUses] = {};
    std::size_t cap[kMemoryUses] = {};
};

class BufferPool {
public:
    // A receive buffer holds one FUSE request: 1 MiB of data behind its headers (FUSE_BUFFER_HEADER_SIZE in
    // libfuse's lib/fuse_i.h, 4 KiB).
    static constexpr std::size_t kPayloadSize = std::size_t{1} << 20;
    static constexpr std::size_t kHeaderSize = 4096;
    static constexpr std::size_t kBufferSize = kPayloadSize + kHeaderSize;

    using Ready = std::function<void(Buffer)>;

    virtual ~BufferPool() = default;

    // Takes a buffer without waiting; empty if this use may not take one now.
    virtual std::optional<Buffer> try_take(MemoryUse use) = 0;
    // Calls `ready` with a buffer: at once when one is free, else when its turn comes (first come, first served
    // within a use).
    virtual void take(MemoryUse use, Ready ready) = 0;
    // Charges the buffer to another use (a received write that becomes file data); waits like take().
    virtual void recharge(Buffer buffer, MemoryUse use, Ready ready) = 0;
    // Like recharge(), but without waiting: returns false and changes nothing if it would have to wait, or if others
    // wait.
    virtual bool try_recharge(Buffer& buffer, MemoryUse use) = 0;
    // `relieve` is called, without locks, whenever a taker has to wait, until it returns false: the block cache
    // frees blocks, writers send partial parts early or spill. Listeners are asked in the order they were added.
    virtual void add_pressure_listener(std::function<bool(MemoryUse waiting)> relieve) = 0;
    [[nodiscard]] virtual PoolUsage usage() const = 0;

protected:
    friend class Buffer;
    virtual void put_back(std::byte* data, MemoryUse use) = 0;
    static std::byte* release(Buffer& buffer) {
        buffer.pool_ = nullptr;
        return std::exchange(buffer.data_, nullptr);
    }
};

inline std::size_t Buffer::size() const {
    return data_ == nullptr ? 0 : BufferPool::kBufferSize;
}

inline void Buffer::reset() {
    if (data_ != nullptr) {
        std::exchange(pool_, nullptr)->put_back(std::exchange(data_, nullptr), use_);
    }
}

}  // namespace ckptfs
