// SPDX-License-Identifier: Apache-2.0
#include "base/zeros.h"

#include <algorithm>
#include <array>

namespace ckptfs {
namespace {

// Never written, so that the kernel backs all of it by one page of its own.
constinit std::array<std::byte, kZeroBlock> zero_block{};

}  // namespace

Slice zeros(std::size_t size) {
    return Slice{nullptr, ByteSpan(zero_block).first(std::min(size, kZeroBlock))};
}

}  // namespace ckptfs
