// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16.h"

#include <algorithm>
#include <cstring>

#include "codec/always_inline.h"

namespace ckptfs {
namespace {

// The loops below are vectorised by the compiler, for each instruction set that calls them.
constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t kMagnitude = 0x7fffffff;
constexpr std::uint16_t kNan = 0x7fc0;
constexpr std::uint32_t kTie = 0x8000;
// Floats that are checked together: nearly all blocks have no exception.
constexpr std::size_t kBlock = 256;

CKPTFS_INLINE std::uint32_t load(const std::byte* floats, std::size_t i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, floats + i * sizeof(bits), sizeof(bits));
    return bits;
}

CKPTFS_INLINE std::uint16_t restored(std::uint16_t rounded, std::uint32_t lower_half) {
    return static_cast<std::uint16_t>(rounded - (lower_half > kTie ? 1U : 0U));
}

CKPTFS_INLINE void round_all(const std::byte* floats, std::size_t count, std::uint16_t* rounded) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = load(floats, i);
        const std::uint32_t upper = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        rounded[i] = static_cast<std::uint16_t>((bits & kMagnitude) > kInfinity ? kNan : upper);
    }
}

CKPTFS_INLINE void restore_all(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                               std::byte* floats) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto lower_half = std::to_integer<std::uint32_t>(low[i]) | std::to_integer<std::uint32_t>(high[i]) << 8;
        std::uint16_t rounded = 0;
        std::memcpy(&rounded, bf16 + i * sizeof(rounded), sizeof(rounded));
        const std::uint32_t bits = std::uint32_t{restored(rounded, lower_half)} << 16 | lower_half;
        std::memcpy(floats + i * sizeof(bits), &bits, sizeof(bits));
    }
}

CKPTFS_INLINE bool all_restored(const std::byte* floats, const std::uint16_t* rounded, std::size_t count) {
    std::uint32_t differences = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = load(floats, i);
        differences |= restored(rounded[i], bits & 0xffff) ^ bits >> 16;
    }
    return differences == 0;
}

struct Kernels {
    void (*round)(const std::byte* floats, std::size_t count, std::uint16_t* rounded);
    void (*restore)(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                    std::byte* floats);
    bool (*all_restored)(const std::byte* floats, const std::uint16_t* rounded, std::size_t count);
};

void portable_round(const std::byte* floats, std::size_t count, std::uint16_t* rounded) {
    round_all(floats, count, rounded);
}
void portable_restore(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                      std::byte* floats) {
    restore_all(low, high, bf16, count, floats);
}
bool portable_all_restored(const std::byte* floats, const std::uint16_t* rounded, std::size_t count) {
    return all_restored(floats, rounded, count);
}
constexpr Kernels kPortable{portable_round, portable_restore, portable_all_restored};

#if defined(__x86_64__)
[[gnu::target("avx2")]] void avx2_round(const std::byte* floats, std::size_t count, std::uint16_t* rounded) {
    round_all(floats, count, rounded);
}
[[gnu::target("avx2")]] void avx2_restore(const std::byte* low, const std::byte* high, const std::byte* bf16,
                                          std::size_t count, std::byte* floats) {
    restore_all(low, high, bf16, count, floats);
}
[[gnu::target("avx2")]] bool avx2_all_restored(const std::byte* floats, const std::uint16_t* rounded,
                                               std::size_t count) {
    return all_restored(floats, rounded, count);
}
constexpr Kernels kAvx2{avx2_round, avx2_restore, avx2_all_restored};
#endif

const Kernels& kernels() {
#if defined(__x86_64__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    return has_avx2 ? kAvx2 : kPortable;
#else
    return kPortable;
#endif
}

}  // namespace

void round_to_bf16(const std::byte* floats, std::size_t count, std::uint16_t* rounded) {
    kernels().round(floats, count, rounded);
}

void restore_floats(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                    std::byte* floats) {
    kernels().restore(low, high, bf16, count, floats);
}

bool find_exceptions(const std::byte* floats, const std::uint16_t* rounded, std::size_t count, std::size_t limit,
                     std::vector<RoundingException>& exceptions) {
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
        const std::size_t end = std::min(begin + kBlock, count);
        if (kernels().all_restored(floats + begin * sizeof(std::uint32_t), rounded + begin, end - begin)) {
            continue;
        }
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint32_t bits = load(floats, i);
            const auto upper_half = static_cast<std::uint16_t>(bits >> 16);
            if (restored(rounded[i], bits & 0xffff) != upper_half) {
                exceptions.push_back({static_cast<std::uint32_t>(i), upper_half});
            }
        }
        if (exceptions.size() > limit) {
            return false;
        }
    }
    return true;
}

}  // namespace ckptfs
