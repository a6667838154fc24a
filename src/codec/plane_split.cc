// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_split.h"

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ckptfs {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie in memory");

using Planes = std::array<std::byte*, kMaxElementWidth>;
using ConstPlanes = std::array<const std::byte*, kMaxElementWidth>;

template <class Element>
void split_elements(const std::byte* elements, std::size_t first, std::size_t count, unsigned rotation,
                    const Planes& planes) {
    for (std::size_t i = first; i < count; ++i) {
        Element element;
        std::memcpy(&element, elements + i * sizeof(Element), sizeof(Element));
        element = std::rotl(element, static_cast<int>(rotation));
        for (std::size_t k = 0; k < sizeof(Element); ++k) {
            planes[k][i] = static_cast<std::byte>(element >> (8 * k));
        }
    }
}

template <class Element>
void merge_elements(const ConstPlanes& planes, std::size_t first, std::size_t count, unsigned rotation,
                    std::byte* elements) {
    for (std::size_t i = first; i < count; ++i) {
        Element element = 0;
        for (std::size_t k = 0; k < sizeof(Element); ++k) {
            element =
                static_cast<Element>(element | static_cast<Element>(static_cast<Element>(planes[k][i]) << (8 * k)));
        }
        element = std::rotr(element, static_cast<int>(rotation));
        std::memcpy(elements + i * sizeof(Element), &element, sizeof(Element));
    }
}

void split_from(std::size_t first, const std::byte* elements, std::size_t count, unsigned width, unsigned rotation,
                const Planes& planes) {
    switch (width) {
        case 1:
            return split_elements<std::uint8_t>(elements, first, count, rotation, planes);
        case 2:
            return split_elements<std::uint16_t>(elements, first, count, rotation, planes);
        case 4:
            return split_elements<std::uint32_t>(elements, first, count, rotation, planes);
        default:
            return split_elements<std::uint64_t>(elements, first, count, rotation, planes);
    }
}

void merge_from(std::size_t first, const ConstPlanes& planes, std::size_t count, unsigned width, unsigned rotation,
                std::byte* elements) {
    switch (width) {
        case 1:
            return merge_elements<std::uint8_t>(planes, first, count, rotation, elements);
        case 2:
            return merge_elements<std::uint16_t>(planes, first, count, rotation, elements);
        case 4:
            return merge_elements<std::uint32_t>(planes, first, count, rotation, elements);
        default:
            return merge_elements<std::uint64_t>(planes, first, count, rotation, elements);
    }
}

void portable_split(const std::byte* elements, std::size_t count, unsigned width, unsigned rotation,
                    const Planes& planes) {
    split_from(0, elements, count, width, rotation, planes);
}

void portable_merge(const ConstPlanes& planes, std::size_t count, unsigned width, unsigned rotation,
                    std::byte* elements) {
    merge_from(0, planes, count, width, rotation, elements);
}

constexpr PlaneKernels kPortable{portable_split, portable_merge};

#if defined(__x86_64__)
#define CKPTFS_AVX2 [[gnu::target("avx2"), gnu::always_inline]] inline

// A block is 32 elements: the low lane of each vector works on the first 16, the high lane on the others, so that no
// byte ever crosses lanes.
constexpr std::size_t kBlock = 32;
constexpr std::size_t kLaneBytes = 16;

template <unsigned kWidth>
CKPTFS_AVX2 __m256i rotate_left(__m256i x, __m128i by, __m128i back) {
    if constexpr (kWidth == 2) {
        return _mm256_or_si256(_mm256_sll_epi16(x, by), _mm256_srl_epi16(x, back));
    } else if constexpr (kWidth == 4) {
        return _mm256_or_si256(_mm256_sll_epi32(x, by), _mm256_srl_epi32(x, back));
    } else {
        return _mm256_or_si256(_mm256_sll_epi64(x, by), _mm256_srl_epi64(x, back));
    }
}

// Halves the width again and again: even bytes to the front vectors, odd bytes to the others.
template <unsigned kWidth>
CKPTFS_AVX2 void take_apart(const __m256i* elements, unsigned first_plane, unsigned plane_step, const Planes& planes,
                            std::size_t i) {
    if constexpr (kWidth == 1) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[first_plane] + i), elements[0]);
    } else {
        const __m256i low = _mm256_set1_epi16(0x00ff);
        __m256i even[kWidth / 2];
        __m256i odd[kWidth / 2];
        for (unsigned j = 0; j < kWidth / 2; ++j) {
            const __m256i a = elements[2 * j];
            const __m256i b = elements[2 * j + 1];
            even[j] = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
            odd[j] = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
        }
        take_apart<kWidth / 2>(even, first_plane, plane_step * 2, planes, i);
        take_apart<kWidth / 2>(odd, first_plane + plane_step, plane_step * 2, planes, i);
    }
}

template <unsigned kWidth>
CKPTFS_AVX2 void put_together(const ConstPlanes& planes, unsigned first_plane, unsigned plane_step, std::size_t i,
                              __m256i* elements) {
    if constexpr (kWidth == 1) {
        elements[0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(planes[first_plane] + i));
    } else {
        __m256i even[kWidth / 2];
        __m256i odd[kWidth / 2];
        put_together<kWidth / 2>(planes, first_plane, plane_step * 2, i, even);
        put_together<kWidth / 2>(planes, first_plane + plane_step, plane_step * 2, i, odd);
        for (unsigned j = 0; j < kWidth / 2; ++j) {
            elements[2 * j] = _mm256_unpacklo_epi8(even[j], odd[j]);
            elements[2 * j + 1] = _mm256_unpackhi_epi8(even[j], odd[j]);
        }
    }
}

template <unsigned kWidth, bool kRotate>
[[gnu::target("avx2")]] std::size_t split_blocks(const std::byte* elements, std::size_t count, unsigned rotation,
                                                 const Planes& planes) {
    const __m128i by = _mm_cvtsi32_si128(static_cast<int>(rotation));
    const __m128i back = _mm_cvtsi32_si128(static_cast<int>(8 * kWidth - rotation));
    std::size_t i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        const std::byte* block = elements + i * kWidth;
        __m256i vectors[kWidth];
        for (unsigned j = 0; j < kWidth; ++j) {
            const std::byte* low = block + j * kLaneBytes;
            const __m256i x = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(low + kWidth * kLaneBytes),
                                                  reinterpret_cast<const __m128i*>(low));
            vectors[j] = kRotate ? rotate_left<kWidth>(x, by, back) : x;
        }
        take_apart<kWidth>(vectors, 0, 1, planes, i);
    }
    return i;
}

template <unsigned kWidth, bool kRotate>
[[gnu::target("avx2")]] std::size_t merge_blocks(const ConstPlanes& planes, std::size_t count, unsigned rotation,
                                                 std::byte* elements) {
    // A right rotation is a left rotation by the rest of the bits.
    const __m128i by = _mm_cvtsi32_si128(static_cast<int>(8 * kWidth - rotation));
    const __m128i back = _mm_cvtsi32_si128(static_cast<int>(rotation));
    std::size_t i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        std::byte* block = elements + i * kWidth;
        __m256i vectors[kWidth];
        put_together<kWidth>(planes, 0, 1, i, vectors);
        for (unsigned j = 0; j < kWidth; ++j) {
            const __m256i x = kRotate ? rotate_left<kWidth>(vectors[j], by, back) : vectors[j];
            std::byte* low = block + j * kLaneBytes;
            _mm256_storeu2_m128i(reinterpret_cast<__m128i*>(low + kWidth * kLaneBytes), reinterpret_cast<__m128i*>(low),
                                 x);
        }
    }
    return i;
}

template <unsigned kWidth>
void avx2_split_width(const std::byte* elements, std::size_t count, unsigned rotation, const Planes& planes) {
    const std::size_t done = rotation > 0 ? split_blocks<kWidth, true>(elements, count, rotation, planes)
                                          : split_blocks<kWidth, false>(elements, count, rotation, planes);
    split_from(done, elements, count, kWidth, rotation, planes);
}

template <unsigned kWidth>
void avx2_merge_width(const ConstPlanes& planes, std::size_t count, unsigned rotation, std::byte* elements) {
    const std::size_t done = rotation > 0 ? merge_blocks<kWidth, true>(planes, count, rotation, elements)
                                          : merge_blocks<kWidth, false>(planes, count, rotation, elements);
    merge_from(done, planes, count, kWidth, rotation, elements);
}

void avx2_split(const std::byte* elements, std::size_t count, unsigned width, unsigned rotation, const Planes& planes) {
    switch (width) {
        case 2:
            return avx2_split_width<2>(elements, count, rotation, planes);
        case 4:
            return avx2_split_width<4>(elements, count, rotation, planes);
        case 8:
            return avx2_split_width<8>(elements, count, rotation, planes);
        default:
            return split_from(0, elements, count, width, rotation, planes);
    }
}

void avx2_merge(const ConstPlanes& planes, std::size_t count, unsigned width, unsigned rotation, std::byte* elements) {
    switch (width) {
        case 2:
            return avx2_merge_width<2>(planes, count, rotation, elements);
        case 4:
            return avx2_merge_width<4>(planes, count, rotation, elements);
        case 8:
            return avx2_merge_width<8>(planes, count, rotation, elements);
        default:
            return merge_from(0, planes, count, width, rotation, elements);
    }
}

constexpr PlaneKernels kAvx2{avx2_split, avx2_merge};
#endif

}  // namespace

const PlaneKernels& portable_plane_kernels() {
    return kPortable;
}

const PlaneKernels& plane_kernels() {
#if defined(__x86_64__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    return has_avx2 ? kAvx2 : kPortable;
#else
    return kPortable;
#endif
}

}  // namespace ckptfs
