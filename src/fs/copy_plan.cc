// SPDX-License-Identifier: Apache-2.0
#include "fs/copy_plan.h"

#include <algorithm>

#include "ckptfs/store_limits.h"

namespace ckptfs {

std::vector<ByteRange> copy_ranges(std::uint64_t size) {
    constexpr std::uint64_t kMinPart = std::uint64_t{32} << 20;
    constexpr std::uint64_t kWantedParts = 64;
    const std::uint64_t wanted = (size + kWantedParts - 1) / kWantedParts;
    const std::uint64_t part = std::clamp(wanted, kMinPart, kMaxPartSize);
    std::vector<ByteRange> ranges;
    for (std::uint64_t offset = 0; offset < size; offset += part) {
        ranges.push_back(ByteRange{offset, std::min(part, size - offset), false});
    }
    return ranges;
}

}  // namespace ckptfs
