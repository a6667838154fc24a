// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "codec/entropy.h"
#include "codec/plane_split.h"

namespace ckptfs {
namespace {

// Counts of the bytes at each offset modulo 8: what any width can be judged by.
using PositionCounts = std::array<ByteCounts, kMaxElementWidth>;

constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 128;
// A rotated element reads one bit of the byte before it.
constexpr std::size_t kSmallestSampled = 1024;
// Sum of squared counts over that of evenly spread bytes. 1.1 is about 7.93 bits a byte; chance alone moves it by
// less than 0.01.
constexpr double kRandomSpread = 1.1;
// A wider element always looks a little cheaper in a sample, and more so the fewer bytes each count is made of.
constexpr std::array<double, 4> kWidthMargin{0, 0.02, 0.07, 0.16};
constexpr double kRotationMargin = 0.02;
// Above that a byte of an element is no candidate for the one with the exponent.
constexpr double kExponentBits = 7.5;
// A cell goes with those before it while its byte with the exponent may be the same.
constexpr double kSameByteBits = 0.5;

struct Cell {
    std::size_t offset = 0;
    std::size_t size = 0;
    SubBlockKind kind = SubBlockKind::kRandom;
    unsigned width = 1;
    // Offset modulo width of the cheapest byte, and what each costs.
    unsigned cheapest = 0;
    std::array<double, kMaxElementWidth> bits{};
};

// Where the runs of a sample begin: spread evenly, at offsets in the frame that are multiples of 8.
template <class Visit>
void for_each_run(std::size_t offset, std::size_t size, std::size_t runs, Visit visit) {
    const std::size_t first = (offset + 7) & ~std::size_t{7};
    const std::size_t end = offset + size;
    const std::size_t step = (size / runs) & ~std::size_t{7};
    if (step <= kSampleRun) {
        visit(first, (end - first) & ~std::size_t{7});
        return;
    }
    for (std::size_t i = 0; i < runs && first + i * step + kSampleRun <= end; ++i) {
        visit(first + i * step, kSampleRun);
    }
}

PositionCounts sample(ByteSpan raw, std::size_t offset, std::size_t size) {
    PositionCounts counts{};
    for_each_run(offset, size, kSampleRuns, [&](std::size_t begin, std::size_t run_size) {
        for (std::size_t i = begin; i < begin + run_size; i += kMaxElementWidth) {
            for (std::size_t k = 0; k < kMaxElementWidth; ++k) {
                ++counts[k][std::to_integer<std::size_t>(raw[i + k])];
            }
        }
    });
    return counts;
}

ByteCounts pooled(const PositionCounts& counts, unsigned width, unsigned position) {
    ByteCounts sum = counts[position];
    for (unsigned other = position + width; other < kMaxElementWidth; other += width) {
        for (std::size_t byte = 0; byte < sum.size(); ++byte) {
            sum[byte] += counts[other][byte];
        }
    }
    return sum;
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

void choose_width(const PositionCounts& counts, Cell& cell) {
    double best = 0;
    for (unsigned log_width = 0; log_width < kWidthMargin.size(); ++log_width) {
        const unsigned width = 1U << log_width;
        std::array<double, kMaxElementWidth> bits{};
        double sum = 0;
        for (unsigned position = 0; position < width; ++position) {
            bits[position] = bits_per_byte(pooled(counts, width, position));
            sum += bits[position];
        }
        const double cost = sum / width + kWidthMargin[log_width];
        if (log_width == 0 || cost < best) {
            best = cost;
            cell.width = width;
            cell.bits = bits;
        }
    }
    const auto* cheapest = std::min_element(cell.bits.begin(), cell.bits.begin() + cell.width);
    cell.cheapest = static_cast<unsigned>(cheapest - cell.bits.begin());
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
    const PositionCounts counts = sample(raw, offset, size);
    if (looks_random(pooled(counts, 1, 0))) {
        cell.kind = SubBlockKind::kRandom;
        return cell;
    }
    choose_width(counts, cell);
    return cell;
}

template <class Element>
double rotated_bits(ByteSpan raw, std::size_t offset, std::size_t size, unsigned phase) {
    std::array<ByteCounts, sizeof(Element)> counts{};
    for_each_run(offset, size, kSampleRuns, [&](std::size_t begin, std::size_t run_size) {
        for (std::size_t i = begin + phase; i + sizeof(Element) <= begin + run_size; i += sizeof(Element)) {
            Element element;
            std::memcpy(&element, raw.data() + i, sizeof(element));
            element = std::rotl(element, 1);
            for (std::size_t k = 0; k < sizeof(Element); ++k) {
                ++counts[k][static_cast<std::uint8_t>(element >> (8 * k))];
            }
        }
    });
    double sum = 0;
    for (const ByteCounts& position : counts) {
        sum += bits_per_byte(position);
    }
    return sum;
}

double rotated_bits(ByteSpan raw, const Cell& cells, unsigned phase) {
    switch (cells.width) {
        case 2:
            return rotated_bits<std::uint16_t>(raw, cells.offset, cells.size, phase);
        case 4:
            return rotated_bits<std::uint32_t>(raw, cells.offset, cells.size, phase);
        default:
            return rotated_bits<std::uint64_t>(raw, cells.offset, cells.size, phase);
    }
}

// `phase` counts from the frame's beginning here.
PlaneLayout choose_layout(ByteSpan raw, const Cell& cells) {
    PlaneLayout layout;
    layout.width = cells.width;
    if (cells.width == 1) {
        return layout;
    }
    layout.phase = (cells.cheapest + 1) % cells.width;
    double best = -kRotationMargin;
    for (unsigned position = 0; position < cells.width; ++position) {
        best += cells.bits[position];
    }
    for (unsigned position = 0; position < cells.width; ++position) {
        if (cells.bits[position] > kExponentBits) {
            continue;
        }
        const unsigned phase = (position + 1) % cells.width;
        const double bits = rotated_bits(raw, cells, phase);
        if (bits < best) {
            best = bits;
            layout.phase = phase;
            layout.rotate = true;
        }
    }
    return layout;
}

bool belong_together(ByteSpan raw, const Cell& before, const Cell& cell) {
    if (before.kind != cell.kind || before.width != cell.width) {
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
