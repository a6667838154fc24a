// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ckptfs::testing {

// Bytes that differ from place to place, so that a byte at the wrong offset is seen.
[[nodiscard]] std::string pattern(std::uint64_t size, std::uint64_t offset = 0);

// Bytes that cannot be compressed.
[[nodiscard]] std::string noise(std::uint64_t size, unsigned seed);

}  // namespace ckptfs::testing
