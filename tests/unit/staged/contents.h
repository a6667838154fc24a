// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace ckptfs::testing {

inline constexpr char kKey[] = "dir/file";

// Nothing that compresses: where parts begin is known.
inline std::string bytes(std::uint64_t size, std::uint64_t seed = 0) {
    std::mt19937_64 random(seed);
    std::string text(size, '\0');
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
        const std::uint64_t bits = random();
        std::memcpy(text.data() + at, &bits, sizeof bits);
    }
    return text;
}

}  // namespace ckptfs::testing
