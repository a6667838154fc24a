// SPDX-License-Identifier: Apache-2.0
#include "codec/reference_index.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/xxhash.h"

namespace ckptfs {
namespace {

// Memory of a piece with its slots in the table and the filter, and what a growing vector takes in addition.
constexpr std::uint64_t kBytesPerPiece = 64;
constexpr std::size_t kFilterBitsPerPiece = 32;
constexpr int kCredit = 2;

std::uint64_t size_of_pieces(unsigned level) {
    return std::uint64_t{ReferenceIndex::kPieceElements * sizeof(std::uint16_t)} << level;
}

}  // namespace

ReferenceIndex::ReferenceIndex(std::uint64_t max_bytes)
    : max_pieces_(std::max<std::uint64_t>(max_bytes / kBytesPerPiece, kFrameSize / size_of_pieces(0))) {}

std::uint64_t ReferenceIndex::joined(std::uint64_t first, std::uint64_t second) {
    const std::array<std::uint64_t, 2> both{first, second};
    return xxh3(as_text(std::as_bytes(std::span(both))));
}

void ReferenceIndex::forget(std::uint64_t begin, std::uint64_t end) {
    const std::unique_lock lock(mutex_);
    const std::uint64_t size = size_of_pieces(level_);
    const auto erased =
        std::erase_if(pieces_, [=](const Piece& piece) { return piece.offset < end && piece.offset + size > begin; });
    if (erased > 0) {
        placed_ = 0;
        table_.clear();
        count_.store(pieces_.size(), std::memory_order_relaxed);
    }
}

void ReferenceIndex::add(std::span<const Piece> pieces) {
    const std::unique_lock lock(mutex_);
    while (pieces_.size() + (pieces.size() >> level_) > max_pieces_ && level_ < kMaxLevel) {
        coarsen();
    }
    const std::size_t joined_pieces = std::size_t{1} << level_;
    std::array<std::uint64_t, std::size_t{1} << kMaxLevel> hashes{};
    while (pieces.size() >= joined_pieces && pieces_.size() < max_pieces_) {
        if (pieces[joined_pieces - 1].offset - pieces[0].offset != size_of_pieces(0) * (joined_pieces - 1)) {
            // Not adjacent in the file.
            pieces = pieces.subspan(1);
            continue;
        }
        for (std::size_t i = 0; i < joined_pieces; ++i) {
            hashes[i] = pieces[i].hash;
        }
        for (std::size_t left = joined_pieces; left > 1; left /= 2) {
            for (std::size_t i = 0; i < left / 2; ++i) {
                hashes[i] = joined(hashes[2 * i], hashes[2 * i + 1]);
            }
        }
        pieces_.push_back({pieces[0].window, hashes[0], pieces[0].offset});
        pieces = pieces.subspan(joined_pieces);
    }
    count_.store(pieces_.size(), std::memory_order_relaxed);
}

// Drops pieces that have no neighbour.
void ReferenceIndex::coarsen() {
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& one, const Piece& other) { return one.offset < other.offset; });
    const std::uint64_t size = size_of_pieces(level_);
    std::size_t kept = 0;
    for (std::size_t i = 0; i + 1 < pieces_.size(); ++i) {
        if (pieces_[i].offset + size == pieces_[i + 1].offset) {
            pieces_[kept++] = {pieces_[i].window, joined(pieces_[i].hash, pieces_[i + 1].hash), pieces_[i].offset};
            ++i;
        }
    }
    pieces_.resize(kept);
    ++level_;
    placed_ = 0;
    table_.clear();
}

void ReferenceIndex::note_search(bool found) {
    if (found) {
        credit_.store(kCredit, std::memory_order_relaxed);
    } else if (credit_.load(std::memory_order_relaxed) > 0) {
        credit_.fetch_sub(1, std::memory_order_relaxed);
    }
}

void ReferenceIndex::place(std::size_t first) {
    const auto shift = static_cast<unsigned>(64 - std::countr_zero(table_.size()));
    for (std::size_t i = first; i < pieces_.size(); ++i) {
        const std::uint64_t window = pieces_[i].window;
        if (is_constant(window)) {
            continue;
        }
        const std::uint64_t hash = window * kMultiplier;
        const std::uint64_t bit = hash >> filter_shift_;
        filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
        for (std::size_t probe = 0; probe < kMaxProbes; ++probe) {
            std::uint32_t& slot = table_[((hash >> shift) + probe) & (table_.size() - 1)];
            if (slot == 0) {
                slot = static_cast<std::uint32_t>(i + 1);
                break;
            }
        }
    }
}

void ReferenceIndex::bring_up_to_date() {
    const std::unique_lock lock(mutex_);
    if (placed_ == pieces_.size() && !table_.empty()) {
        return;
    }
    if (table_.size() < 2 * pieces_.size() || table_.empty()) {
        const std::size_t size = std::bit_ceil(std::max<std::size_t>(pieces_.size() * 3, 64));
        table_.assign(size, 0);
        const std::size_t bits = std::bit_ceil(std::max<std::size_t>(pieces_.size(), 2) * kFilterBitsPerPiece);
        filter_.assign(bits / 64, 0);
        filter_shift_ = static_cast<unsigned>(64 - std::countr_zero(bits));
        placed_ = 0;
    }
    place(placed_);
    placed_ = pieces_.size();
}

ReferenceIndex::Lookup::Lookup(ReferenceIndex& index) : index_(index), lock_(index.mutex_) {
    while (index.placed_ != index.pieces_.size() || index.table_.empty()) {
        lock_.unlock();
        index.bring_up_to_date();
        lock_.lock();
    }
}

const ReferenceIndex::Piece* ReferenceIndex::Lookup::find(std::uint64_t window, std::size_t& probe) const {
    const std::size_t mask = index_.table_.size() - 1;
    const auto shift = static_cast<unsigned>(64 - std::countr_zero(index_.table_.size()));
    const std::uint64_t hash = window * kMultiplier;
    while (probe < kMaxProbes) {
        const std::uint32_t slot = index_.table_[((hash >> shift) + probe++) & mask];
        if (slot == 0) {
            break;
        }
        const Piece& piece = index_.pieces_[slot - 1];
        if (piece.window == window) {
            return &piece;
        }
    }
    return nullptr;
}

}  // namespace ckptfs
