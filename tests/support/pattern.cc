// SPDX-License-Identifier: Apache-2.0
#include "support/pattern.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace ckptfs::testing {

std::string pattern(std::uint64_t size, std::uint64_t offset) {
    std::string text(size, '\0');
    std::uint64_t place = offset;
    for (char& byte : text) {
        byte = static_cast<char>('A' + (place ^ (place >> 8) ^ (place >> 20)) % 53);
        ++place;
    }
    return text;
}

std::string noise(std::uint64_t size, unsigned seed) {
    std::string text(size, '\0');
    std::mt19937 random(seed);
    for (std::uint64_t at = 0; at < size; at += sizeof(std::uint32_t)) {
        const auto bits = static_cast<std::uint32_t>(random());
        std::memcpy(text.data() + at, &bits, std::min<std::uint64_t>(sizeof bits, size - at));
    }
    return text;
}

}  // namespace ckptfs::testing
