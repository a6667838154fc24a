// SPDX-License-Identifier: Apache-2.0
// Huffman coding of bytes that almost all lie within 32 of each other, as exponents do: two at a time, which takes half
// of the lookups. It writes the same as write_huffman_streams(). Its counts are close to those of count_bytes(): it
// counts about half of the bytes, and misses no byte that occurs, so that all can be coded.
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
    // The first of 32 successive values that almost all bytes have, judging from a sample; nothing if there are no such
    // values.
    [[nodiscard]] static std::optional<std::uint8_t> find_window(ByteSpan bytes);

    // `bytes`: 64 or more, which stay where they are until they are written.
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
    // For each block of each stream: its 16 pairs, as positions in a table of 32 x 32, and whether all are in the
    // window.
    std::vector<std::uint16_t> pairs_;
    std::vector<std::uint8_t> inside_;
    // The range of the bytes in the window, as places in it; it may be a little too large.
    PlaceRange places_;
    // For each pair: its count, in two tables, and its code words.
    std::array<std::uint32_t, 2048> pair_counts_{};
    std::array<std::uint64_t, 1024> pair_words_{};
};

}  // namespace ckptfs
