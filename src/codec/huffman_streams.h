// SPDX-License-Identifier: Apache-2.0
// Counts bytes, and writes the four Huffman streams of a zstd literals section (RFC 8878, section 3.1.1.3.1.6).
//
// Pure functions. What is written is the same on every processor.
#pragma once

#include <array>
#include <cstddef>

#include "ckptfs/bytes.h"
#include "codec/entropy.h"
#include "codec/huffman_code.h"

namespace ckptfs {

// Adds to the counts.
void count_bytes(ByteSpan bytes, ByteCounts& counts);

// Scratch bytes for four streams of this many symbols, with what the writer touches beyond.
[[nodiscard]] constexpr std::size_t huffman_scratch(std::size_t symbols) {
    return symbols * kMaxCodeLength / 8 + 4 * 16;
}

// Returns four streams, which are in `scratch` (huffman_scratch(bytes.size()) bytes). bytes: 16 or more, and every one
// of them has a code word.
std::array<ByteSpan, 4> write_huffman_streams(ByteSpan bytes, const CodeWords& words, MutableByteSpan scratch);

}  // namespace ckptfs
