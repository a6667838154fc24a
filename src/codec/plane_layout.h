// SPDX-License-Identifier: Apache-2.0
// Guesses from samples how the elements of a piece of a file are laid out: how wide they are, and where the first one
// begins.
//
// Nothing says what a file holds, and tensors start at odd offsets in many containers. The guess is the width at which
// the bytes of each position within an element cost least (entropy of order 0). A wrong guess costs compression, never
// correctness.
//
// Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckptfs/bytes.h"

namespace ckptfs {

struct PlaneLayout {
    // 1: bytes that are better left together (text, small integers, anything unknown).
    unsigned width = 1;
    // Bytes in front of the first whole element; less than width.
    unsigned phase = 0;
    // Bits that go from the top of an element to below its lowest bit: the sign, and those of the exponent that are the
    // same everywhere.
    unsigned rotation = 0;

    friend bool operator==(const PlaneLayout&, const PlaneLayout&) = default;
};

enum class SubBlockKind : std::uint8_t {
    // Not compressible by entropy of order 0: stored raw.
    kRandom,
    // One byte, repeated.
    kConstant,
    kElements,
};

struct SubBlock {
    std::size_t offset = 0;
    std::size_t size = 0;
    SubBlockKind kind = SubBlockKind::kRandom;
    PlaneLayout layout;

    friend bool operator==(const SubBlock&, const SubBlock&) = default;
};

// The layout of each cell is guessed by itself.
inline constexpr std::size_t kLayoutCell = std::size_t{128} << 10;
// Elements of one sub-block. Every 64 Ki have code tables of their own, to follow changes in the file.
inline constexpr std::size_t kElementsPerSubBlock = std::size_t{64} << 10;

// The sub-blocks of a frame, in order and without gaps; `blocks` is emptied first. Offsets are into `raw`.
void plan_sub_blocks(ByteSpan raw, std::vector<SubBlock>& blocks);

}  // namespace ckptfs
