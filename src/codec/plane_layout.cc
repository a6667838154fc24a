// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <span>

#include "codec/entropy.h"
#include "codec/plane_split.h"

namespace ckptfs {
namespace {

// Counts of the bytes at each offset modulo 8: they are enough to judge any width.
using PositionCounts = std::array<ByteCounts, kMaxElementWidth>;

// Runs of a cache line each.
constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 64;
constexpr std::size_t kSmallestSampled = 1024;
// Sum of squared counts over that of evenly spread bytes. 1.1 is about 7.93 bits a byte; chance alone moves it by
// less than 0.02.
constexpr double kRandomSpread = 1.1;
// Sum of squared differences of two counts over what chance alone makes of it. Chance reaches 4 once in a thousand
// exponents; exponents beside mantissas are above 20.
constexpr double kDifferent = 6;
// Floats of one exponent are rare; integers have highest bytes that are all the same.
constexpr double kExponentsDiffer = 0.3;
// One element in this many may differ from the rest.
constexpr std::size_t kOutliers = 512;
// Leading bits of the exponent that make room for a mantissa's: a code of both loses less to whole bits. A second one
// gains a third as much, and takes larger code tables.
constexpr unsigned kMaxEqualBits = 1;
// Below that a mantissa has dead bits, which are better left together.
constexpr double kMantissaBits = 7.5;
// Bits of an element. With mixed signs a rotated bf16 or fp32 never costs more, so the sample may err by this much;
// with one sign it may cost less. If exponents do not fill bytes either way (fp16, fp64), a gain has to be seen.
constexpr double kMixedSignsSlack = 0.3;
constexpr double kOneSignSlack = 0.05;
constexpr double kOtherRotationGain = 0.2;
// If the higher of two bytes costs more bits than this, it has bits of a mantissa in it: the element is an fp16, not a
// bf16.
constexpr double kExponentAlone = 5;
// A cell joins those before it while its byte with the exponent may be at the same offset: its byte there costs at most
// this many bits more than its cheapest one.
constexpr double kSameByteBits = 0.5;

struct Cell {
    std::size_t offset = 0;
    std::size_t size = 0;
    SubBlockKind kind = SubBlockKind::kRandom;
    unsigned width = 1;
    // Offset modulo width of the cheapest byte, which is assumed to be the highest, and what each byte costs, not
    // counting zeros, which are in all or in none of an element's bytes.
    unsigned cheapest = 0;
    std::array<double, kMaxElementWidth> bits{};
    // Elements below zero and above it: weights, not squares.
    bool mixed_signs = false;
};

// Visits the runs of a sample: spread evenly, at offsets in the frame that are multiples of 8. Each is moved by another
// distance, so that they are not all of the same columns of a matrix.
template <class Visit>
void for_each_run(std::size_t offset, std::size_t size, Visit visit) {
    const std::size_t first = (offset + 7) & ~std::size_t{7};
    const std::size_t end = offset + size;
    const std::size_t places = size / kSampleRuns / kSampleRun;
    if (places <= 1) {
        visit(first, (end - first) & ~std::size_t{7});
        return;
    }
    for (std::size_t i = 0; i < kSampleRuns; ++i) {
        const std::size_t begin = first + (i * places + i * 37 % places) * kSampleRun;
        if (begin + kSampleRun <= end) {
            visit(begin, kSampleRun);
        }
    }
}

PositionCounts sample(ByteSpan raw, std::size_t offset, std::size_t size) {
    PositionCounts counts{};
    for_each_run(offset, size, [&](std::size_t begin, std::size_t run_size) {
        for (std::size_t i = begin; i < begin + run_size; i += kMaxElementWidth) {
            for (std::size_t k = 0; k < kMaxElementWidth; ++k) {
                ++counts[k][std::to_integer<std::size_t>(raw[i + k])];
            }
        }
    });
    return counts;
}

void add(ByteCounts& sum, const ByteCounts& counts) {
    for (std::size_t byte = 0; byte < sum.size(); ++byte) {
        sum[byte] += counts[byte];
    }
}

ByteCounts pooled(const PositionCounts& counts) {
    ByteCounts sum{};
    for (const ByteCounts& position : counts) {
        add(sum, position);
    }
    return sum;
}

bool differ(const ByteCounts& a, const ByteCounts& b) {
    std::uint32_t squares = 0;
    std::uint32_t total = 0;
    for (std::size_t byte = 0; byte < a.size(); ++byte) {
        const std::uint32_t difference = a[byte] - b[byte];
        squares += difference * difference;
        total += a[byte] + b[byte];
    }
    // Zeros that both have say nothing: in what was never used, a few elements show the width.
    total -= 2 * std::min(a[0], b[0]);
    return squares > kDifferent * total;
}

bool looks_random(const ByteCounts& counts) {
    double total = 0;
    double squares = 0;
    for (const std::uint32_t count : counts) {
        total += count;
        squares += static_cast<double>(count) * count;
    }
    const double even = total * total / 256 + total;
    return squares < kRandomSpread * even;
}

bool is_constant(ByteSpan bytes) {
    return std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// The width is the distance at which the bytes look the same again.
void choose_width(PositionCounts& counts, Cell& cell) {
    cell.width = kMaxElementWidth;
    while (cell.width > 1) {
        const unsigned half = cell.width / 2;
        for (unsigned position = 0; position < half; ++position) {
            if (differ(counts[position], counts[position + half])) {
                return;
            }
        }
        for (unsigned position = 0; position < half; ++position) {
            add(counts[position], counts[position + half]);
        }
        cell.width = half;
    }
}

void weigh_positions(PositionCounts& counts, Cell& cell) {
    for (unsigned position = 0; position < cell.width; ++position) {
        counts[position][0] = 0;
        cell.bits[position] = bits_per_byte(counts[position]);
    }
    const auto* cheapest = std::min_element(cell.bits.begin(), cell.bits.begin() + cell.width);
    cell.cheapest = static_cast<unsigned>(cheapest - cell.bits.begin());
    const ByteCounts& highest = counts[cell.cheapest];
    const std::size_t all = std::accumulate(highest.begin(), highest.end(), std::size_t{0});
    const std::size_t negative = std::accumulate(highest.begin() + 128, highest.end(), std::size_t{0});
    cell.mixed_signs = negative > all / kOutliers && all - negative > all / kOutliers;
}

Cell describe(ByteSpan raw, std::size_t offset, std::size_t size) {
    Cell cell;
    cell.offset = offset;
    cell.size = size;
    if (is_constant(raw.subspan(offset, std::min<std::size_t>(size, 64))) && is_constant(raw.subspan(offset, size))) {
        cell.kind = SubBlockKind::kConstant;
        return cell;
    }
    cell.kind = SubBlockKind::kElements;
    if (size < kSmallestSampled) {
        return cell;
    }
    PositionCounts counts = sample(raw, offset, size);
    if (looks_random(pooled(counts))) {
        cell.kind = SubBlockKind::kRandom;
        return cell;
    }
    choose_width(counts, cell);
    weigh_positions(counts, cell);
    return cell;
}

struct ElementSample {
    // Bits of a whole element.
    double bits = 0;
    // Bits of its highest byte.
    double exponent_bits = 0;
    // How many of an element's highest bits, below the sign, are the same in all.
    unsigned equal_bits = 0;
};

template <class Element>
ElementSample sample_elements(ByteSpan raw, const Cell& cells, unsigned phase, int rotation) {
    std::array<ByteCounts, sizeof(Element)> counts{};
    for_each_run(cells.offset, cells.size, [&](std::size_t begin, std::size_t run_size) {
        for (std::size_t i = begin + phase; i + sizeof(Element) <= begin + run_size; i += sizeof(Element)) {
            Element element;
            std::memcpy(&element, raw.data() + i, sizeof(element));
            element = std::rotl(element, rotation);
            for (std::size_t k = 0; k < sizeof(Element); ++k) {
                ++counts[k][static_cast<std::uint8_t>(element >> (8 * k))];
            }
        }
    });
    ElementSample result;
    for (const ByteCounts& position : counts) {
        result.bits += bits_per_byte(position);
    }
    const ByteCounts& exponents = counts.back();
    result.exponent_bits = bits_per_byte(exponents);
    if (result.bits - result.exponent_bits < kMantissaBits * (sizeof(Element) - 1)) {
        return result;
    }
    const std::size_t total = std::accumulate(exponents.begin(), exponents.end(), std::size_t{0});
    unsigned ones = 0xff;
    unsigned zeros = 0xff;
    for (unsigned byte = 0; byte < exponents.size(); ++byte) {
        if (exponents[byte] > total / kOutliers) {
            ones &= byte;
            zeros &= ~byte;
        }
    }
    result.equal_bits = static_cast<unsigned>(std::countl_one(static_cast<std::uint8_t>(ones | zeros)));
    return result;
}

ElementSample sample_elements(ByteSpan raw, const Cell& cells, unsigned phase, int rotation) {
    switch (cells.width) {
        case 2:
            return sample_elements<std::uint16_t>(raw, cells, phase, rotation);
        case 4:
            return sample_elements<std::uint32_t>(raw, cells, phase, rotation);
        default:
            return sample_elements<std::uint64_t>(raw, cells, phase, rotation);
    }
}

// The `phase` that it returns counts from the frame's beginning.
PlaneLayout choose_layout(ByteSpan raw, const Cell& cells) {
    PlaneLayout layout;
    layout.width = cells.width;
    if (cells.width == 1) {
        return layout;
    }
    layout.phase = (cells.cheapest + 1) % cells.width;
    const ElementSample plain = sample_elements(raw, cells, layout.phase, 0);
    const ElementSample rotated = sample_elements(raw, cells, layout.phase, 1);
    const bool exponent_fills_byte = cells.width == 4 || (cells.width == 2 && rotated.exponent_bits < kExponentAlone);
    const double slack = !exponent_fills_byte ? -kOtherRotationGain
                         : cells.mixed_signs  ? kMixedSignsSlack
                                              : kOneSignSlack;
    if (rotated.exponent_bits > kExponentsDiffer && rotated.bits < plain.bits + slack) {
        layout.rotation = 1 + std::min(rotated.equal_bits, kMaxEqualBits);
    }
    return layout;
}

bool belong_together(ByteSpan raw, const Cell& before, const Cell& cell) {
    if (before.kind != cell.kind || before.width != cell.width || before.mixed_signs != cell.mixed_signs) {
        return false;
    }
    if (cell.kind == SubBlockKind::kConstant) {
        return raw[before.offset] == raw[cell.offset];
    }
    return cell.bits[before.cheapest] <= cell.bits[cell.cheapest] + kSameByteBits;
}

void cut(ByteSpan raw, const Cell& cells, std::vector<SubBlock>& blocks) {
    SubBlock block;
    block.offset = cells.offset;
    block.kind = cells.kind;
    if (cells.kind != SubBlockKind::kElements || cells.width == 1) {
        block.size = cells.size;
        blocks.push_back(block);
        return;
    }
    block.layout = choose_layout(raw, cells);
    const unsigned width = block.layout.width;
    const std::size_t end = cells.offset + cells.size;
    block.layout.phase = static_cast<unsigned>((block.layout.phase + width - cells.offset % width) % width);
    while (block.offset < end) {
        const std::size_t left = end - block.offset;
        const std::size_t whole = block.layout.phase + kElementsPerSubBlock * width;
        // What is left over at the end is too little for tables of its own.
        block.size = left < whole + whole / 2 ? left : whole;
        blocks.push_back(block);
        block.offset += block.size;
        block.layout.phase = 0;
    }
}

}  // namespace

void plan_sub_blocks(ByteSpan raw, std::vector<SubBlock>& blocks) {
    blocks.clear();
    Cell together;
    for (std::size_t offset = 0; offset < raw.size();) {
        const std::size_t left = raw.size() - offset;
        const std::size_t size = left < kLayoutCell + kLayoutCell / 2 ? left : kLayoutCell;
        const Cell cell = describe(raw, offset, size);
        offset += size;
        if (together.size > 0 && belong_together(raw, together, cell)) {
            together.size += size;
            continue;
        }
        if (together.size > 0) {
            cut(raw, together, blocks);
        }
        together = cell;
    }
    cut(raw, together, blocks);
}

}  // namespace ckptfs
