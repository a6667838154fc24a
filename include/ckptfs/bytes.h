// SPDX-License-Identifier: Apache-2.0
// Views of bytes and runs of shared, read-only slices.
//
// A Payload is how data moves between modules without being copied: slices of receive buffers become frames, frames
// become the body of an UploadPart, blocks of a GetObject become the reply to a read. A slice keeps its memory alive
// through `owner`; the bytes must not change once a slice of them has been handed out.
//
// Payload is a value and not synchronised; the bytes it refers to may be read from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan as_bytes(std::string_view text) {
    return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

inline std::string_view as_text(ByteSpan bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Slice {
    std::shared_ptr<const void> owner;
    ByteSpan bytes;
};

class Payload {
public:
    Payload() = default;

    static Payload from_string(std::string text) {
        Payload payload;
        auto owner = std::make_shared<const std::string>(std::move(text));
        payload.append(Slice{owner, as_bytes(*owner)});
        return payload;
    }

    void append(Slice slice) {
        if (slice.bytes.empty()) {
            return;
        }
        size_ += slice.bytes.size();
        // Small writes lie side by side in one buffer: a slice for each would take more memory than they do.
        if (!slices_.empty() && slice.owner != nullptr && slices_.back().owner == slice.owner &&
            slices_.back().bytes.data() + slices_.back().bytes.size() == slice.bytes.data()) {
            slices_.back().bytes =
                ByteSpan(slices_.back().bytes.data(), slices_.back().bytes.size() + slice.bytes.size());
            return;
        }
        slices_.push_back(std::move(slice));
    }

    void append(Payload other) {
        for (Slice& slice : other.slices_) {
            append(std::move(slice));
        }
    }

    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::span<const Slice> slices() const { return slices_; }

    // Shares the bytes [offset, offset + size), cut at the end of the payload.
    [[nodiscard]] Payload subrange(std::uint64_t offset, std::uint64_t size) const {
        Payload part;
        for (const Slice& slice : slices_) {
            if (size == 0) {
                break;
            }
            if (offset >= slice.bytes.size()) {
                offset -= slice.bytes.size();
                continue;
            }
            const std::uint64_t take = std::min<std::uint64_t>(slice.bytes.size() - offset, size);
            part.append(Slice{slice.owner, slice.bytes.subspan(offset, take)});
            offset = 0;
            size -= take;
        }
        return part;
    }

    // Copies from `offset` until `target` is full or the payload ends; returns how many bytes were copied.
    std::size_t copy_to(std::uint64_t offset, MutableByteSpan target) const {
        std::size_t copied = 0;
        for (const Slice& slice : slices_) {
            if (copied == target.size()) {
                break;
            }
            if (offset >= slice.bytes.size()) {
                offset -= slice.bytes.size();
                continue;
            }
            const std::size_t take = std::min(slice.bytes.size() - offset, target.size() - copied);
            std::memcpy(target.data() + copied, slice.bytes.data() + offset, take);
            copied += take;
            offset = 0;
        }
        return copied;
    }

    [[nodiscard]] std::string to_string() const {
        std::string text;
        text.reserve(size_);
        for (const Slice& slice : slices_) {
            text.append(as_text(slice.bytes));
        }
        return text;
    }

    // Compares the bytes, however they are cut into slices; copies nothing.
    friend bool operator==(const Payload& one, const Payload& other) {
        if (one.size_ != other.size_) {
            return false;
        }
        std::uint64_t offset = 0;
        for (const Slice& slice : one.slices_) {
            ByteSpan left = slice.bytes;
            const Payload same_place = other.subrange(offset, left.size());
            for (const Slice& piece : same_place.slices_) {
                if (std::memcmp(left.data(), piece.bytes.data(), piece.bytes.size()) != 0) {
                    return false;
                }
                left = left.subspan(piece.bytes.size());
            }
            offset += slice.bytes.size();
        }
        return true;
    }

private:
    std::vector<Slice> slices_;
    std::uint64_t size_ = 0;
};

}  // namespace ckptfs
