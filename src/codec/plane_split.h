// SPDX-License-Identifier: Apache-2.0
// Takes elements apart into planes, one for each byte of an element, and puts them together again.
//
// Plane k holds byte k of every element, the lowest byte first, after the element's bits were rotated left: by one, the
// sign of a bf16 or fp32 moves below the lowest bit, and the exponent fills the highest byte; by more, bits of the
// exponent that are the same everywhere make room for what mantissas have in common.
//
// Pure functions. All sets of kernels give the same bytes.
#pragma once

#include <array>
#include <cstddef>

namespace ckptfs {

inline constexpr std::size_t kMaxElementWidth = 8;

struct PlaneKernels {
    // elements: count * width bytes, width 1, 2, 4 or 8; rotation: 0 to 7. Each of the first `width` planes takes count
    // bytes.
    void (*split)(const std::byte* elements, std::size_t count, unsigned width, unsigned rotation,
                  const std::array<std::byte*, kMaxElementWidth>& planes);
    void (*merge)(const std::array<const std::byte*, kMaxElementWidth>& planes, std::size_t count, unsigned width,
                  unsigned rotation, std::byte* elements);
};

[[nodiscard]] const PlaneKernels& portable_plane_kernels();
// The fastest kernels that this processor can run.
[[nodiscard]] const PlaneKernels& plane_kernels();

}  // namespace ckptfs
