// SPDX-License-Identifier: Apache-2.0
// Entropy of order 0, estimated from a sample.
//
// Pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace ckptfs {

using ByteCounts = std::array<std::uint32_t, 256>;

// Estimated bits per byte; 8 is incompressible. Corrected for what a small sample hides (Miller 1955): a sample of
// random bytes is estimated near 8, not below.
[[nodiscard]] double bits_per_byte(const ByteCounts& counts);

}  // namespace ckptfs
