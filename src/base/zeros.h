// SPDX-License-Identifier: Apache-2.0
// Zeros that take no memory of the budget: one block of them, shared by every hole and all padding of every file.
#pragma once

#include <cstddef>

#include "ckptfs/bytes.h"

namespace ckptfs {

// zeros() returns at most this many bytes.
inline constexpr std::size_t kZeroBlock = std::size_t{1} << 20;
[[nodiscard]] Slice zeros(std::size_t size);

}  // namespace ckptfs
