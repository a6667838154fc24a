// SPDX-License-Identifier: Apache-2.0
// Huffman coding of bytes that almost all lie within 32 of each other, as exponents do: two at a time, which takes
// half of the lookups. What it writes is what write_huffman_streams() does. What it counts is near to what
// count_bytes() does: it looks at half of the bytes, and no byte that occurs is missed, so that all can be coded.
//
// Reuses its memory, and belongs to one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ckptfs/bytes.h"
#include "codec/entropy.h"
#include "codec/huffman_code.h"

namespace ckptfs {

class SymbolPairs {
public:
    // The first of 32 values that almost all bytes have, judging from a sample; none where there are no such.
    [[nodiscard]] static std::optional<std::uint8_t> find_window(ByteSpan bytes);

    // `bytes` stay where they are until they are written. 64 or more.
    void prepare(ByteSpan bytes, std::uint8_t window);
    void count(ByteCounts& counts);
    std::array<ByteSpan, 4> write_streams(const CodeWords& words, MutableByteSpan scratch);

    struct PlaceRange {
        std::uint8_t least = 0;
        std::uint8_t most = 0;
    };

private:
    ByteSpan bytes_;
    std::uint8_t window_ = 0;
    // Of each stream's blocks: 16 pairs each, as positions in a table of 32 x 32, and whether all are in the window.
    std::vector<std::uint16_t> pairs_;
    std::vector<std::uint8_t> inside_;
    // Of the blocks that are in the window, as places in it, or a little more.
    PlaceRange places_;
    // Of each pair: counts, and code words.
    std::array<std::uint32_t, 2048> pair_counts_{};
    std::array<std::uint64_t, 1024> pair_words_{};
};

}  // namespace ckptfs
