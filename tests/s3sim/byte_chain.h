// SPDX-License-Identifier: Apache-2.0
#pragma once

// Object bytes: immutable, reference-counted slices of pooled chunks.
// Parts, objects and replies share chunks; joining parts and cutting ranges copies no byte.
// A ChunkPool may be used from any thread and must outlive every chunk that it gave out.
// A ByteChain is a value; use one instance from one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::s3sim {

inline constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

struct Chunk {
    std::shared_ptr<std::byte> data;
    std::size_t capacity = 0;

    explicit operator bool() const { return data != nullptr; }
};

class ChunkPool {
public:
    explicit ChunkPool(std::size_t limit_bytes);
    ~ChunkPool();
    ChunkPool(const ChunkPool&) = delete;
    ChunkPool& operator=(const ChunkPool&) = delete;

    // A chunk for up to `wanted` bytes; its capacity is at most kChunkBytes. Empty when the limit is reached.
    Chunk get(std::size_t wanted);
    std::size_t bytes_in_use() const;
    // Touches memory for so many bytes now rather than while someone measures.
    void preallocate(std::size_t bytes);

private:
    bool add_slab();               // mutex_ held
    std::byte* take_full_chunk();  // mutex_ held
    void give_back(std::byte* data, std::size_t capacity);

    const std::size_t limit_bytes_;

    mutable std::mutex mutex_;
    std::size_t bytes_in_use_ = 0;   // guarded by mutex_
    std::vector<std::byte*> free_;   // guarded by mutex_; last in, first out keeps reuse warm
    std::vector<std::byte*> slabs_;  // guarded by mutex_
};

struct Slice {
    std::shared_ptr<const std::byte> data;  // points at the first byte, owns the whole chunk
    std::size_t size = 0;

    std::span<const std::byte> bytes() const { return {data.get(), size}; }
};

class ByteChain {
public:
    static ByteChain from_string(std::string text);

    void append(Slice slice);
    void append(const ByteChain& other);

    std::uint64_t size() const { return pieces_.empty() ? 0 : pieces_.back().end; }
    bool empty() const { return pieces_.empty(); }
    std::size_t slice_count() const { return pieces_.size(); }
    const Slice& slice(std::size_t index) const { return pieces_[index].slice; }

    // Bytes past the end are left out.
    ByteChain range(std::uint64_t offset, std::uint64_t length) const;
    std::string to_string() const;

private:
    struct Piece {
        Slice slice;
        std::uint64_t end = 0;  // offset in the chain just past this slice
    };
    std::vector<Piece> pieces_;
};

// The same bytes with one bit of the byte at `offset` inverted; unchanged if offset is past the end.
ByteChain with_flipped_bit(const ByteChain& chain, std::uint64_t offset);

}  // namespace ckptfs::s3sim
