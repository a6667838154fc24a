// SPDX-License-Identifier: Apache-2.0
// The bytes of one file so far that look like bf16: a hash for each piece of them, so that floats that round to the
// same can refer to it.
//
// A piece has kPieceElements elements; when pieces become too many for the memory, neighbours are joined in pairs,
// again and again. Pieces that were not added, were forgotten, or had no neighbour when pieces were joined are not
// known: a reference that is not found costs space, never correctness. What is found is compared by 64 bits of XXH3 of
// all of its bytes.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "ckptfs/codec.h"

namespace ckptfs {

class ReferenceIndex final : public FrameHistory {
public:
    static constexpr std::size_t kPieceElements = 4096;
    // The first elements of a piece, by which it is found. Windows of equal elements are not looked for.
    static constexpr std::size_t kWindowElements = 4;
    // Larger pieces would not be found within a frame.
    static constexpr unsigned kMaxLevel = 4;

    struct Piece {
        std::uint64_t window = 0;
        std::uint64_t hash = 0;
        // Offset in the file.
        std::uint64_t offset = 0;
    };

    explicit ReferenceIndex(std::uint64_t max_bytes);

    void forget(std::uint64_t begin, std::uint64_t end) override;
    // Adds pieces of level 0, in the order of the file.
    void add(std::span<const Piece> pieces);
    [[nodiscard]] bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

    // Whether the last frames that looked found something.
    [[nodiscard]] bool found_lately() const { return credit_.load(std::memory_order_relaxed) > 0; }
    void note_search(bool found);

    // Looks pieces up; while it exists, the index does not change.
    class Lookup {
    public:
        explicit Lookup(ReferenceIndex& index);

        // A piece is kPieceElements << level elements long.
        [[nodiscard]] unsigned level() const { return index_.level_; }
        // False for nearly all windows that no piece has.
        [[nodiscard]] bool may_have(std::uint64_t window) const {
            const std::uint64_t bit = window * kMultiplier >> index_.filter_shift_;
            return (index_.filter_[bit / 64] >> (bit % 64) & 1) != 0;
        }
        // The next piece of this window, in no order; null if there is none. `probe` is 0 for the first, and then as
        // the last call left it.
        [[nodiscard]] const Piece* find(std::uint64_t window, std::size_t& probe) const;

    private:
        const ReferenceIndex& index_;
        std::shared_lock<std::shared_mutex> lock_;
    };

    // The hash of two neighbours joined, from their hashes.
    [[nodiscard]] static std::uint64_t joined(std::uint64_t first, std::uint64_t second);
    [[nodiscard]] static bool is_constant(std::uint64_t window) {
        return window == (window & 0xffff) * 0x0001000100010001;
    }

private:
    static constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
    // How many pieces of equal windows, or that share a slot of the table, are found at most.
    static constexpr std::size_t kMaxProbes = 16;

    // Both are called with the mutex held exclusively.
    void coarsen();
    void place(std::size_t first);

    void bring_up_to_date();

    const std::size_t max_pieces_;
    std::atomic<std::size_t> count_{0};
    std::atomic<int> credit_{0};

    // Not a Mutex: the compiler cannot follow a lock that a Lookup keeps.
    mutable std::shared_mutex mutex_;
    // Guarded by mutex_.
    unsigned level_ = 0;
    std::vector<Piece> pieces_;
    // How many of the pieces the table has; it is brought up to date at a lookup.
    std::size_t placed_ = 0;
    // A hash table by window: 1 + the index in pieces_; 0 is free. Its size is a power of two.
    std::vector<std::uint32_t> table_;
    // One bit for each value of more bits of that hash.
    std::vector<std::uint64_t> filter_ = std::vector<std::uint64_t>(1);
    unsigned filter_shift_ = 58;
};

}  // namespace ckptfs
