// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_bits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ckptfs {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kEveryByte = 0x0101010101010101;
// Bytes that are checked at a time: most planes vary in every bit within them.
constexpr std::size_t kStride = 4096;

std::uint64_t load(const std::byte* source) {
    std::uint64_t word = 0;
    std::memcpy(&word, source, kWord);
    return word;
}

// Kernels for eight bytes at a time, whose packed bits fill whole bytes.
struct BitKernels {
    void (*pack)(const std::byte* bytes, std::size_t words, std::uint64_t mask, std::byte* packed);
    // Reads 8 bytes for each word.
    void (*unpack)(const std::byte* packed, std::size_t words, std::uint64_t mask, std::uint64_t constant,
                   std::byte* bytes);
};

std::size_t bits_of(std::uint64_t mask) {
    return static_cast<std::size_t>(std::popcount(mask)) / kWord;
}

std::uint64_t extract(std::uint64_t word, std::uint64_t mask) {
    std::uint64_t packed = 0;
    for (unsigned at = 0; mask != 0; mask &= mask - 1, ++at) {
        packed |= (word >> std::countr_zero(mask) & 1) << at;
    }
    return packed;
}

std::uint64_t deposit(std::uint64_t packed, std::uint64_t mask) {
    std::uint64_t word = 0;
    for (; mask != 0; mask &= mask - 1, packed >>= 1) {
        word |= (packed & 1) << std::countr_zero(mask);
    }
    return word;
}

void portable_pack(const std::byte* bytes, std::size_t words, std::uint64_t mask, std::byte* packed) {
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = extract(load(bytes + i * kWord), mask);
        std::memcpy(packed + i * bits_of(mask), &word, kWord);
    }
}

void portable_unpack(const std::byte* packed, std::size_t words, std::uint64_t mask, std::uint64_t constant,
                     std::byte* bytes) {
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = deposit(load(packed + i * bits_of(mask)), mask) | constant;
        std::memcpy(bytes + i * kWord, &word, kWord);
    }
}

constexpr BitKernels kPortable{portable_pack, portable_unpack};

#if defined(__x86_64__)
[[gnu::target("bmi2")]] void bmi2_pack(const std::byte* bytes, std::size_t words, std::uint64_t mask,
                                       std::byte* packed) {
    const std::size_t bits = bits_of(mask);
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = _pext_u64(load(bytes + i * kWord), mask);
        std::memcpy(packed + i * bits, &word, kWord);
    }
}

[[gnu::target("bmi2")]] void bmi2_unpack(const std::byte* packed, std::size_t words, std::uint64_t mask,
                                         std::uint64_t constant, std::byte* bytes) {
    const std::size_t bits = bits_of(mask);
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = _pdep_u64(load(packed + i * bits), mask) | constant;
        std::memcpy(bytes + i * kWord, &word, kWord);
    }
}

constexpr BitKernels kBmi2{bmi2_pack, bmi2_unpack};
#endif

const BitKernels& kernels() {
#if defined(__x86_64__)
    static const bool has_bmi2 = __builtin_cpu_supports("bmi2") != 0;
    return has_bmi2 ? kBmi2 : kPortable;
#else
    return kPortable;
#endif
}

}  // namespace

std::uint8_t varying_bits(ByteSpan bytes) {
    const std::uint64_t first = std::to_integer<std::uint64_t>(bytes[0]) * kEveryByte;
    std::uint64_t varying = 0;
    std::size_t i = 0;
    while (i + kStride <= bytes.size() && (varying & 0xff) != 0xff) {
        std::array<std::uint64_t, 4> parts{};
        for (const std::size_t end = i + kStride; i < end; i += 4 * kWord) {
            for (std::size_t k = 0; k < 4; ++k) {
                parts[k] |= load(bytes.data() + i + k * kWord) ^ first;
            }
        }
        varying |= parts[0] | parts[1] | parts[2] | parts[3];
        varying |= varying >> 32;
        varying |= varying >> 16;
        varying |= varying >> 8;
    }
    for (; i < bytes.size() && (varying & 0xff) != 0xff; ++i) {
        varying |= std::to_integer<std::uint64_t>(bytes[i] ^ bytes[0]);
    }
    return static_cast<std::uint8_t>(varying);
}

std::size_t packed_size(std::size_t count, std::uint8_t mask) {
    return (count * static_cast<std::size_t>(std::popcount(mask)) + 7) / 8;
}

void pack_bits(ByteSpan bytes, std::uint8_t mask, std::byte* packed) {
    const std::size_t words = bytes.size() / kWord;
    kernels().pack(bytes.data(), words, mask * kEveryByte, packed);
    const ByteSpan rest = bytes.subspan(words * kWord);
    std::array<std::byte, kWord> last{};
    std::copy(rest.begin(), rest.end(), last.begin());
    const std::uint64_t word = extract(load(last.data()), mask * kEveryByte);
    const std::size_t done = packed_size(words * kWord, mask);
    std::memcpy(packed + done, &word, packed_size(bytes.size(), mask) - done);
}

void unpack_bits(ByteSpan packed, std::uint8_t mask, std::uint8_t constant, MutableByteSpan bytes) {
    const std::size_t bits = packed_size(kWord, mask);
    // Only as long as whole words may be read.
    std::size_t words = bytes.size() / kWord;
    while (words > 0 && (words - 1) * bits + kWord > packed.size()) {
        --words;
    }
    kernels().unpack(packed.data(), words, mask * kEveryByte, constant * kEveryByte, bytes.data());
    for (std::size_t i = words; i * kWord < bytes.size(); ++i) {
        std::array<std::byte, kWord> source{};
        const ByteSpan from = packed.subspan(std::min(packed.size(), i * bits));
        std::copy_n(from.begin(), std::min(from.size(), bits), source.begin());
        const std::uint64_t word = deposit(load(source.data()), mask * kEveryByte) | constant * kEveryByte;
        std::memcpy(bytes.data() + i * kWord, &word, std::min(kWord, bytes.size() - i * kWord));
    }
}

std::byte centre_of(ByteSpan segment, unsigned step) {
    std::size_t sum = 0;
    // Sums of 16 bits: 32 words of two bytes each stay below 2^16.
    constexpr std::uint64_t kEven = 0x00ff00ff00ff00ff;
    std::uint64_t sums = 0;
    std::size_t i = 0;
    for (; i + kWord <= segment.size(); i += kWord) {
        const std::uint64_t word = load(segment.data() + i);
        sums += (word & kEven) + (word >> 8 & kEven);
    }
    for (unsigned shift = 0; shift < 64; shift += 16) {
        sum += sums >> shift & 0xffff;
    }
    for (; i < segment.size(); ++i) {
        sum += std::to_integer<std::size_t>(segment[i]);
    }
    const std::size_t mean = (sum + segment.size() * step / 2) / segment.size();
    return static_cast<std::byte>(mean & ~std::size_t{step - 1});
}

void subtract(ByteSpan bytes, std::byte centre, std::byte* target) {
    const auto by = std::to_integer<std::uint8_t>(centre);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        target[i] = static_cast<std::byte>(std::to_integer<std::uint8_t>(bytes[i]) - by);
    }
}

void add_in_place(MutableByteSpan bytes, std::byte centre) {
    const auto by = std::to_integer<std::uint8_t>(centre);
    for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(std::to_integer<std::uint8_t>(byte) + by);
    }
}

}  // namespace ckptfs
