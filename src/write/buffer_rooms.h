// SPDX-License-Identifier: Apache-2.0
// The unused ends of buffers, where more bytes are put, so that few bytes do not hold a whole buffer: those of small
// writes (FillRoom) and of frames that became small (EncodedRoom).
//
// Bytes are only ever added after those that were handed out.
// Threads: a FillRoom is guarded by its owner's mutex; an EncodedRoom may be used by any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"

namespace ckptfs {

// The room after the bytes of one buffer. Guarded by its owner's mutex.
class BufferRoom {
public:
    // A smaller room is not worth a buffer that stays, nor moving all that is before it.
    static constexpr std::size_t kSmallest = std::size_t{64} << 10;

    [[nodiscard]] std::size_t left() const { return left_; }
    [[nodiscard]] bool empty() const { return owner_ == nullptr; }

    // `data` must fit.
    Slice copy(ByteSpan data) {
        std::memcpy(next_, data.data(), data.size());
        Slice slice{owner_, ByteSpan(next_, data.size())};
        next_ += data.size();
        left_ -= data.size();
        return slice;
    }

    // Uses what is left of another buffer instead. Returns the owner of the one before, to be freed.
    [[nodiscard]] std::shared_ptr<const void> replace(std::shared_ptr<const void> owner, std::byte* next,
                                                      std::size_t left) {
        next_ = next;
        left_ = left;
        return std::exchange(owner_, std::move(owner));
    }

    // Gives the room up; what was put there keeps its memory.
    [[nodiscard]] std::shared_ptr<const void> release() { return replace(nullptr, nullptr, 0); }

private:
    std::shared_ptr<const void> owner_;
    std::byte* next_ = nullptr;
    std::size_t left_ = 0;
};

// The room after the last accepted buffer: small writes are copied there.
class FillRoom {
public:
    // Larger writes keep their buffer: it is at least half full, and copying costs more than the other half.
    static constexpr std::size_t kLargestCopy = std::size_t{512} << 10;

    // Copies `data` into the room; empty when it is too large or does not fit.
    std::optional<Slice> copy(ByteSpan data) {
        if (data.size() > kLargestCopy || data.size() > room_.left()) {
            return std::nullopt;
        }
        return room_.copy(data);
    }

    // Shares the buffer that holds `data`. What is left after `data` becomes the room if it is larger than the present
    // one, whose owner is returned to be freed.
    std::shared_ptr<const void> keep(Buffer buffer, ByteSpan data, Slice& slice) {
        std::byte* const begin = buffer.data();
        std::byte* const end = begin + buffer.size();
        slice.bytes = data;
        slice.owner = std::move(buffer).share();
        std::byte* const behind = begin + ((data.data() + data.size()) - begin);
        const auto left = static_cast<std::size_t>(end - behind);
        if (left <= room_.left() || left < BufferRoom::kSmallest) {
            return nullptr;
        }
        return room_.replace(slice.owner, behind, left);
    }

    [[nodiscard]] std::shared_ptr<const void> release() { return room_.release(); }
    [[nodiscard]] bool empty() const { return room_.empty(); }

private:
    BufferRoom room_;
};

// The room after the last encoded frame: frames lie side by side in the buffers they were encoded into.
class EncodedRoom {
public:
    // Returns the first `size` bytes of `output`, which may have been moved into the room.
    Payload place(Buffer output, std::size_t size) {
        Payload placed;
        // Moving nearly all of it would cost more than the rest is worth.
        if (size > BufferPool::kBufferSize - BufferRoom::kSmallest) {
            const ByteSpan bytes = output.bytes().first(size);
            placed.append(Slice{std::move(output).share(), bytes});
            return placed;
        }
        // Freed after the mutex is released, since that may wake others.
        std::shared_ptr<const void> left_behind;
        const MutexLock lock(mutex_);
        const std::size_t front = std::min(size, room_.left());
        if (front > 0) {
            placed.append(room_.copy(output.bytes().first(front)));
        }
        if (front < size) {
            std::byte* const begin = output.data();
            const std::size_t rest = size - front;
            const std::size_t left = output.size() - rest;
            std::memmove(begin, begin + front, rest);
            const std::shared_ptr<const void> owner = std::move(output).share();
            placed.append(Slice{owner, ByteSpan(begin, rest)});
            left_behind = room_.replace(owner, begin + rest, left);
        }
        return placed;
    }

    [[nodiscard]] bool empty() const {
        const MutexLock lock(mutex_);
        return room_.empty();
    }

    [[nodiscard]] std::shared_ptr<const void> release() {
        const MutexLock lock(mutex_);
        return room_.release();
    }

private:
    mutable Mutex mutex_;
    BufferRoom room_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
