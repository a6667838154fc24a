// SPDX-License-Identifier: Apache-2.0
#include "byte_chain.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace ckptfs::s3sim {
namespace {

constexpr std::size_t kSlabBytes = 64 * kChunkBytes;

// Below this a chunk is sized to fit, so that a million small objects do not take a million MiB.
constexpr std::size_t kLargestFittedChunk = kChunkBytes / 2;

std::byte* map_slab() {
    void* slab = mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) {
        return nullptr;
    }
    // First touch by huge pages is several times cheaper. A refusal only costs speed.
    madvise(slab, kSlabBytes, MADV_HUGEPAGE);
    return static_cast<std::byte*>(slab);
}

}  // namespace

ChunkPool::ChunkPool(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

ChunkPool::~ChunkPool() {
    for (std::byte* slab : slabs_) {
        munmap(slab, kSlabBytes);
    }
}

Chunk ChunkPool::get(std::size_t wanted) {
    const std::size_t capacity = wanted <= kLargestFittedChunk ? std::max<std::size_t>(wanted, 1) : kChunkBytes;
    std::byte* data = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (bytes_in_use_ + capacity > limit_bytes_) {
            return {};
        }
        if (capacity == kChunkBytes) {
            data = take_full_chunk();
            if (data == nullptr) {
                return {};
            }
        }
        bytes_in_use_ += capacity;
    }
    if (data == nullptr) {
        data = new std::byte[capacity];
    }
    return {std::shared_ptr<std::byte>(data, [this, capacity](std::byte* done) { give_back(done, capacity); }),
            capacity};
}

std::size_t ChunkPool::bytes_in_use() const {
    const std::lock_guard lock(mutex_);
    return bytes_in_use_;
}

void ChunkPool::preallocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    while (slabs_.size() * kSlabBytes < std::min(bytes, limit_bytes_) && add_slab()) {
        std::memset(slabs_.back(), 0, kSlabBytes);
    }
}

bool ChunkPool::add_slab() {
    std::byte* slab = map_slab();
    if (slab == nullptr) {
        return false;
    }
    slabs_.push_back(slab);
    for (std::size_t offset = kSlabBytes; offset > 0; offset -= kChunkBytes) {
        free_.push_back(slab + offset - kChunkBytes);
    }
    return true;
}

std::byte* ChunkPool::take_full_chunk() {
    if (free_.empty() && !add_slab()) {
        return nullptr;
    }
    std::byte* data = free_.back();
    free_.pop_back();
    return data;
}

void ChunkPool::give_back(std::byte* data, std::size_t capacity) {
    if (capacity != kChunkBytes) {
        delete[] data;
    }
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= capacity;
    if (capacity == kChunkBytes) {
        free_.push_back(data);
    }
}

ByteChain ByteChain::from_string(std::string text) {
    ByteChain chain;
    if (!text.empty()) {
        const auto owner = std::make_shared<const std::string>(std::move(text));
        chain.append(Slice{std::shared_ptr<const std::byte>(owner, reinterpret_cast<const std::byte*>(owner->data())),
                           owner->size()});
    }
    return chain;
}

void ByteChain::append(Slice slice) {
    if (slice.size == 0) {
        return;
    }
    const std::uint64_t end = size() + slice.size;
    pieces_.push_back(Piece{std::move(slice), end});
}

void ByteChain::append(const ByteChain& other) {
    for (const Piece& piece : other.pieces_) {
        append(piece.slice);
    }
}

ByteChain ByteChain::range(std::uint64_t offset, std::uint64_t length) const {
    ByteChain result;
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](std::uint64_t value, const Piece& candidate) { return value < candidate.end; });
    for (; piece != pieces_.end() && length > 0; ++piece) {
        const std::uint64_t begin = piece->end - piece->slice.size;
        const auto skip = static_cast<std::size_t>(offset - begin);
        const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(piece->slice.size - skip, length));
        result.append(Slice{std::shared_ptr<const std::byte>(piece->slice.data, piece->slice.data.get() + skip), take});
        offset += take;
        length -= take;
    }
    return result;
}

std::string ByteChain::to_string() const {
    std::string text;
    text.reserve(static_cast<std::size_t>(size()));
    for (const Piece& piece : pieces_) {
        text.append(reinterpret_cast<const char*>(piece.slice.data.get()), piece.slice.size);
    }
    return text;
}

ByteChain with_flipped_bit(const ByteChain& chain, std::uint64_t offset) {
    if (offset >= chain.size()) {
        return chain;
    }
    std::string wrong = chain.range(offset, 1).to_string();
    wrong[0] = static_cast<char>(static_cast<unsigned char>(wrong[0]) ^ 1U);
    ByteChain result = chain.range(0, offset);
    result.append(ByteChain::from_string(std::move(wrong)));
    result.append(chain.range(offset + 1, chain.size()));
    return result;
}

}  // namespace ckptfs::s3sim
