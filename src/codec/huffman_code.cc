// SPDX-License-Identifier: Apache-2.0
#include "codec/huffman_code.h"

#include <algorithm>

namespace ckptfs {
namespace {

struct Leaf {
    std::uint32_t count;
    std::uint8_t symbol;
};

struct Leaves {
    std::array<Leaf, 256> sorted;
    std::size_t size = 0;
};

Leaves sorted_leaves(const ByteCounts& counts) {
    Leaves leaves;
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
        if (counts[symbol] > 0) {
            leaves.sorted[leaves.size++] = {counts[symbol], static_cast<std::uint8_t>(symbol)};
        }
    }
    std::sort(
        leaves.sorted.begin(), leaves.sorted.begin() + static_cast<std::ptrdiff_t>(leaves.size),
        [](const Leaf& a, const Leaf& b) { return a.count != b.count ? a.count < b.count : a.symbol < b.symbol; });
    return leaves;
}

// Huffman's algorithm on sorted counts: nodes are made in the order of their counts, so two queues suffice.
void unlimited_depths(const Leaves& leaves, std::array<std::uint8_t, 256>& depths) {
    const std::size_t size = leaves.size;
    std::array<std::uint32_t, 256> node_counts{};
    // Of leaves, then of nodes: the node that took it.
    std::array<std::uint16_t, 512> parents{};
    std::size_t next_leaf = 0;
    std::size_t next_node = 0;
    for (std::size_t node = 0; node + 1 < size; ++node) {
        std::uint32_t sum = 0;
        for (int child = 0; child < 2; ++child) {
            const bool take_leaf =
                next_leaf < size && (next_node == node || leaves.sorted[next_leaf].count <= node_counts[next_node]);
            if (take_leaf) {
                sum += leaves.sorted[next_leaf].count;
                parents[next_leaf++] = static_cast<std::uint16_t>(node);
            } else {
                sum += node_counts[next_node];
                parents[256 + next_node++] = static_cast<std::uint16_t>(node);
            }
        }
        node_counts[node] = sum;
    }
    std::array<std::uint8_t, 256> node_depths{};
    for (std::size_t node = size - 2; node-- > 0;) {
        node_depths[node] = static_cast<std::uint8_t>(node_depths[parents[256 + node]] + 1);
    }
    for (std::size_t leaf = 0; leaf < size; ++leaf) {
        depths[leaf] = static_cast<std::uint8_t>(node_depths[parents[leaf]] + 1);
    }
}

// Makes no code longer than kMaxCodeLength, at the cost of the rarest that can still grow, and leaves no gap: a
// decoder takes nothing but a complete code. `depths` goes with the sorted leaves, so it falls.
void limit_depths(std::size_t size, std::array<std::uint8_t, 256>& depths) {
    constexpr std::uint32_t kFull = 1U << kMaxCodeLength;
    std::uint32_t used = 0;
    for (std::size_t i = 0; i < size; ++i) {
        depths[i] = std::min<std::uint8_t>(depths[i], kMaxCodeLength);
        used += kFull >> depths[i];
    }
    // From the rarest on: those below the limit lose half of their share.
    while (used > kFull) {
        std::size_t i = 0;
        while (depths[i] >= kMaxCodeLength) {
            ++i;
        }
        // The longest of the codes that can grow gives back least.
        ++depths[i];
        used -= kFull >> depths[i];
    }
    // Any excess goes to the most frequent symbol that it fits.
    for (std::size_t i = size; i-- > 0 && used < kFull;) {
        while (depths[i] > 1 && used + (kFull >> depths[i]) <= kFull) {
            used += kFull >> depths[i];
            --depths[i];
        }
    }
}

}  // namespace

HuffmanCode make_huffman_code(const ByteCounts& counts) {
    const Leaves leaves = sorted_leaves(counts);
    std::array<std::uint8_t, 256> depths{};
    unlimited_depths(leaves, depths);
    limit_depths(leaves.size, depths);
    HuffmanCode code;
    for (std::size_t i = 0; i < leaves.size; ++i) {
        const std::uint8_t symbol = leaves.sorted[i].symbol;
        code.lengths[symbol] = depths[i];
        code.max_length = std::max<unsigned>(code.max_length, depths[i]);
        code.last_symbol = std::max<unsigned>(code.last_symbol, symbol);
    }
    return code;
}

bool is_complete(const HuffmanCode& code) {
    std::uint32_t used = 0;
    for (const std::uint8_t length : code.lengths) {
        used += length > 0 ? (1U << kMaxCodeLength) >> length : 0;
    }
    return used == 1U << kMaxCodeLength;
}

std::uint64_t coded_bits(const HuffmanCode& code, const ByteCounts& counts) {
    std::uint64_t bits = 0;
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
        bits += std::uint64_t{counts[symbol]} * code.lengths[symbol];
    }
    return bits;
}

CodeWords code_words(const HuffmanCode& code) {
    // The longest codes come first, from zero on; within a length the order of the symbols.
    std::array<std::uint64_t, kMaxCodeLength + 2> used{};
    for (const std::uint8_t length : code.lengths) {
        used[length] += length > 0 ? 1 : 0;
    }
    std::array<std::uint64_t, kMaxCodeLength + 2> next{};
    for (unsigned length = code.max_length; length-- > 1;) {
        next[length] = (next[length + 1] + used[length + 1]) >> 1;
    }
    CodeWords words{};
    for (std::size_t symbol = 0; symbol < words.size(); ++symbol) {
        if (const unsigned length = code.lengths[symbol]; length > 0) {
            words[symbol] = next[length]++ << (64 - length) | length;
        }
    }
    return words;
}

}  // namespace ckptfs
