// SPDX-License-Identifier: Apache-2.0
// Huffman codes as zstd's literals have them (RFC 8878, section 4.2): at most 11 bits, canonical, described by their
// weights.
//
// Pure functions; equal counts give the same code on every processor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ckptfs/bytes.h"
#include "codec/entropy.h"

namespace ckptfs {

inline constexpr unsigned kMaxCodeLength = 11;

struct HuffmanCode {
    // Bits of each byte's code; 0 for a byte that does not occur.
    std::array<std::uint8_t, 256> lengths{};
    unsigned max_length = 0;
    unsigned last_symbol = 0;
};

// `counts`: at least two are above zero.
[[nodiscard]] HuffmanCode make_huffman_code(const ByteCounts& counts);
// Whether the code leaves no gap. A reader accepts no other code, so nothing may be written in one.
[[nodiscard]] bool is_complete(const HuffmanCode& code);
// The size of everything that was counted, in bits.
[[nodiscard]] std::uint64_t coded_bits(const HuffmanCode& code, const ByteCounts& counts);
// What an encoder looks up: the code's bits at the top of the word, its length in the lowest byte.
using CodeWords = std::array<std::uint64_t, 256>;
[[nodiscard]] CodeWords code_words(const HuffmanCode& code);

inline constexpr std::size_t kMaxTreeDescription = 129;

// Writes the tree, as it is in front of the streams, to `out`, which has kMaxTreeDescription bytes. Returns the bytes
// written; 0 if the tree cannot be described.
[[nodiscard]] std::size_t describe_huffman_tree(const HuffmanCode& code, MutableByteSpan out);

}  // namespace ckptfs
