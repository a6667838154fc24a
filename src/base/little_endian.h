// SPDX-License-Identifier: Apache-2.0
// Little-endian integers at any address, as object formats hold them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace ckptfs {

static_assert(std::endian::native == std::endian::little, "written for x86-64 and AArch64");

[[nodiscard]] inline std::uint16_t load_u16(const void* from) {
    std::uint16_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
}

[[nodiscard]] inline std::uint32_t load_u32(const void* from) {
    std::uint32_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
}

[[nodiscard]] inline std::uint64_t load_u64(const void* from) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline void store_u16(void* to, std::uint16_t value) {
    std::memcpy(to, &value, sizeof value);
}

inline void store_u32(void* to, std::uint32_t value) {
    std::memcpy(to, &value, sizeof value);
}

inline void store_u64(void* to, std::uint64_t value) {
    std::memcpy(to, &value, sizeof value);
}

}  // namespace ckptfs
