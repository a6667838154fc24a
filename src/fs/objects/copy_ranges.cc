// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/copy_ranges.h"

#include <algorithm>

#include "ckptfs/store_limits.h"

namespace ckptfs::fs {

namespace {

constexpr std::uint64_t kMinPart = std::uint64_t{32} << 20;

std::vector<ByteRange> equal_ranges(std::uint64_t size, std::uint64_t wanted_parts) {
    const std::uint64_t wanted = (size + wanted_parts - 1) / wanted_parts;
    const std::uint64_t part = std::clamp(wanted, kMinPart, kMaxPartSize);
    std::vector<ByteRange> ranges;
    for (std::uint64_t offset = 0; offset < size; offset += part) {
        ranges.push_back(ByteRange{offset, std::min(part, size - offset), false});
    }
    return ranges;
}

}  // namespace

std::vector<ByteRange> copy_ranges(std::uint64_t size) {
    return equal_ranges(size, 64);
}

std::vector<ByteRange> resent_ranges(std::uint64_t size) {
    return equal_ranges(size, kMaxPartNumber);
}

}  // namespace ckptfs::fs
