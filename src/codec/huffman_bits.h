// SPDX-License-Identifier: Apache-2.0
// The innermost part of the Huffman coder: writes a stream of codes from its last symbol to its first, since it is read
// from its end. The newest bits are at the top of a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/always_inline.h"

namespace ckptfs {

class HuffmanBits {
public:
    HuffmanBits() = default;
    // Writes to `out`, and up to 7 bytes beyond the end that finish() returns.
    explicit HuffmanBits(std::byte* out) : out_(out) {}

    // Leaves the code's length in the lowest byte of the word: allowed only while those bits are unused, that is, while
    // no more than 56 are used.
    CKPTFS_INLINE void add_quickly(std::uint64_t code) {
        word_ = word_ >> (code & 63) | code;
        used_ += code;
    }
    CKPTFS_INLINE void add(std::uint64_t code) {
        word_ = word_ >> (code & 63) | (code & ~std::uint64_t{0xff});
        used_ += code;
    }
    // Stores whole bytes; fewer than 8 bits stay. With no bit used it writes what is overwritten later.
    CKPTFS_INLINE void flush() {
        const std::uint64_t bits = word_ >> ((64 - used_) & 63);
        std::memcpy(out_, &bits, sizeof(bits));
        out_ += (used_ >> 3) & 0x1f;
        used_ &= 7;
    }
    // Ends the stream with a set bit, and returns its end.
    CKPTFS_INLINE std::byte* finish() {
        add(std::uint64_t{1} << 63 | 1);
        *out_ = static_cast<std::byte>(word_ >> ((64 - used_) & 63));
        return out_ + 1;
    }

private:
    std::uint64_t word_ = 0;
    // The number of bits used, in its lowest byte; the bytes above are not kept clean.
    std::uint64_t used_ = 0;
    std::byte* out_ = nullptr;
};

// Joins two code words, as CodeWords has them, to one of up to 22 bits: `newer` is added after `older`.
CKPTFS_INLINE std::uint64_t append_code(std::uint64_t older, std::uint64_t newer) {
    const std::uint64_t bits = (older & ~std::uint64_t{0xff}) >> (newer & 63) | (newer & ~std::uint64_t{0xff});
    return bits | ((older & 0xff) + (newer & 0xff));
}

}  // namespace ckptfs
