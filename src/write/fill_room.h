// SPDX-License-Identifier: Apache-2.0
// The unused end of the last buffer that was accepted: small writes are copied there, so that each does not hold a
// buffer of its own.
//
// Bytes are only ever added behind those that were handed out. Guarded by its owner's mutex.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"

namespace ckptfs {

class FillRoom {
public:
    // Larger writes keep their buffer: it is at least half full, and copying costs more than the other half.
    static constexpr std::size_t kLargestCopy = std::size_t{512} << 10;
    // What is left behind a whole request is not worth a buffer that stays.
    static constexpr std::size_t kSmallestRoom = std::size_t{64} << 10;

    // Copies `data` into the room; empty when it is too large or does not fit.
    std::optional<Slice> copy(ByteSpan data) {
        if (data.size() > kLargestCopy || data.size() > left_) {
            return std::nullopt;
        }
        std::memcpy(next_, data.data(), data.size());
        Slice slice{owner_, ByteSpan(next_, data.size())};
        next_ += data.size();
        left_ -= data.size();
        return slice;
    }

    // Shares the buffer that holds `data`. What lies behind becomes the room if it is larger than the present one,
    // whose owner is returned to be freed.
    std::shared_ptr<const void> keep(Buffer buffer, ByteSpan data, Slice& slice) {
        std::byte* const begin = buffer.data();
        std::byte* const end = begin + buffer.size();
        slice.bytes = data;
        slice.owner = std::move(buffer).share();
        std::byte* const behind = begin + ((data.data() + data.size()) - begin);
        const auto room = static_cast<std::size_t>(end - behind);
        if (room <= left_ || room < kSmallestRoom) {
            return nullptr;
        }
        next_ = behind;
        left_ = room;
        return std::exchange(owner_, slice.owner);
    }

    // Gives the room up.
    [[nodiscard]] std::shared_ptr<const void> release() {
        left_ = 0;
        next_ = nullptr;
        return std::exchange(owner_, nullptr);
    }

    [[nodiscard]] bool empty() const { return owner_ == nullptr; }

private:
    std::shared_ptr<const void> owner_;
    std::byte* next_ = nullptr;
    std::size_t left_ = 0;
};

}  // namespace ckptfs
