// SPDX-License-Identifier: Apache-2.0
// Takes elements apart into planes, one for each byte of an element, and puts them together again.
//
// Plane k holds byte k of every element, the lowest byte first. A rotated element has its sign bit moved below its
// lowest bit, so that the exponent of a bf16 or fp32 fills the highest byte.
//
// Pure functions. All sets of kernels give the same bytes.
#pragma once

#include <array>
#include <cstddef>

namespace ckptfs {

inline constexpr std::size_t kMaxElementWidth = 8;

struct PlaneKernels {
    // elements: count * width bytes, width 1, 2, 4 or 8. Each of the first `width` planes takes count bytes.
    void (*split)(const std::byte* elements, std::size_t count, unsigned width, bool rotate,
                  const std::array<std::byte*, kMaxElementWidth>& planes);
    void (*merge)(const std::array<const std::byte*, kMaxElementWidth>& planes, std::size_t count, unsigned width,
                  bool rotate, std::byte* elements);
};

[[nodiscard]] const PlaneKernels& portable_plane_kernels();
// The fastest that this processor runs.
[[nodiscard]] const PlaneKernels& plane_kernels();

}  // namespace ckptfs
