// SPDX-License-Identifier: Apache-2.0
// How much the measurement of rates may ask of a link. Pure.
#pragma once

#include <cstdint>

namespace ckptfs {

// Enough connections to see what the link carries, so few that each has a part to carry, that the bytes suffice, and
// that it is over within seconds also where all of them share what one had. 1: one says all there is to know.
[[nodiscard]] int connections_to_measure(double rate_of_one, std::uint64_t bytes, std::uint64_t piece,
                                         int max_connections);

}  // namespace ckptfs
