// SPDX-License-Identifier: Apache-2.0
// Encoded frames side by side in the buffers they were encoded into, so that a frame that became small does not hold
// memory for a large one.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"

namespace ckptfs {

class EncodedRoom {
public:
    // The first `size` bytes of `output`, wherever they lie afterwards.
    Payload place(Buffer output, std::size_t size) {
        Payload placed;
        // Moving nearly all of it would cost more than the rest is worth.
        if (size > BufferPool::kBufferSize - kSmallestRoom) {
            const ByteSpan bytes = output.bytes().first(size);
            placed.append(Slice{std::move(output).share(), bytes});
            return placed;
        }
        // Freed after the mutex is: that may wake others.
        std::shared_ptr<const void> left_behind;
        const MutexLock lock(mutex_);
        const std::size_t front = std::min(size, left_);
        if (front > 0) {
            std::memcpy(next_, output.data(), front);
            placed.append(Slice{owner_, ByteSpan(next_, front)});
            next_ += front;
            left_ -= front;
        }
        if (front < size) {
            std::byte* const begin = output.data();
            const std::size_t rest = size - front;
            std::memmove(begin, begin + front, rest);
            next_ = begin + rest;
            left_ = output.size() - rest;
            left_behind = std::exchange(owner_, std::move(output).share());
            placed.append(Slice{owner_, ByteSpan(begin, rest)});
        }
        return placed;
    }

    [[nodiscard]] bool empty() const {
        const MutexLock lock(mutex_);
        return owner_ == nullptr;
    }

    // Gives the room up; what was placed keeps its memory.
    [[nodiscard]] std::shared_ptr<const void> release() {
        const MutexLock lock(mutex_);
        left_ = 0;
        next_ = nullptr;
        return std::exchange(owner_, nullptr);
    }

private:
    static constexpr std::size_t kSmallestRoom = std::size_t{64} << 10;

    mutable Mutex mutex_;
    std::shared_ptr<const void> owner_ GUARDED_BY(mutex_);
    std::byte* next_ GUARDED_BY(mutex_) = nullptr;
    std::size_t left_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
