// SPDX-License-Identifier: Apache-2.0
// Simple ways to make a plane smaller, or easier to make smaller: only the bits that vary, and what is left when each
// segment's centre is taken away.
//
// Pure functions; the same bytes on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ckptfs/bytes.h"

namespace ckptfs {

// The bits in which not all bytes are equal. bytes: 1 or more.
[[nodiscard]] std::uint8_t varying_bits(ByteSpan bytes);

[[nodiscard]] std::size_t packed_size(std::size_t count, std::uint8_t mask);
// Packs the bits of each byte that are in `mask`, lowest first, one byte's after those of the one before. packed:
// packed_size() bytes, and 8 more that may be overwritten.
void pack_bits(ByteSpan bytes, std::uint8_t mask, std::byte* packed);
// Reverses pack_bits(); the other bits are those of `constant`. packed: packed_size(bytes.size(), mask).
void unpack_bits(ByteSpan packed, std::uint8_t mask, std::uint8_t constant, MutableByteSpan bytes);

// The mean of a segment, rounded to a multiple of `step`, which is a power of two. segment: 1 to 256 bytes.
[[nodiscard]] std::byte centre_of(ByteSpan segment, unsigned step);
// subtract() and add_in_place() calculate modulo 256.
void subtract(ByteSpan bytes, std::byte centre, std::byte* target);
void add_in_place(MutableByteSpan bytes, std::byte centre);

}  // namespace ckptfs
