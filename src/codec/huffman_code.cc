// SPDX-License-Identifier: Apache-2.0
#include "codec/huffman_code.h"

#include <algorithm>
#include <bit>

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
    // The parent node of each leaf, and from 256 on of each node.
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

// Makes no code longer than kMaxCodeLength, at the cost of the rarest that can still grow, and leaves no gap: a decoder
// accepts only a complete code. `depths` is in the order of the sorted leaves, so it falls.
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

// The tree description in front of the streams: weights of 4 bits, or weights coded by a small finite state machine
// (RFC 8878, sections 4.1 and 4.2.1).

constexpr unsigned kWeightKinds = kMaxCodeLength + 1;
// The highest accuracy that the format allows for weights.
constexpr unsigned kAccuracyLog = 6;
constexpr unsigned kStates = 1U << kAccuracyLog;
constexpr std::size_t kMaxDirectWeights = 128;

struct Weights {
    std::array<std::uint8_t, 256> of{};
    std::size_t size = 0;
};

// The weights of all symbols except the last, whose weight follows from the others.
Weights weights_of(const HuffmanCode& code) {
    Weights weights;
    weights.size = code.last_symbol;
    for (std::size_t symbol = 0; symbol < weights.size; ++symbol) {
        const unsigned length = code.lengths[symbol];
        weights.of[symbol] = static_cast<std::uint8_t>(length == 0 ? 0 : code.max_length + 1 - length);
    }
    return weights;
}

// Lowest bits first.
class BitWriter {
public:
    explicit BitWriter(MutableByteSpan out) : out_(out) {}

    void add(std::uint32_t value, unsigned bits) {
        word_ |= std::uint64_t{value} << used_;
        used_ += bits;
        while (used_ >= 8) {
            put();
        }
    }
    // The bytes written, or 0 where they did not fit.
    std::size_t finish() {
        if (used_ > 0) {
            put();
        }
        return fits_ ? size_ : 0;
    }

private:
    void put() {
        if (size_ < out_.size()) {
            out_[size_++] = static_cast<std::byte>(word_);
        } else {
            fits_ = false;
        }
        word_ >>= 8;
        used_ -= std::min(used_, 8U);
    }

    MutableByteSpan out_;
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
    std::size_t size_ = 0;
    bool fits_ = true;
};

using Shares = std::array<unsigned, kWeightKinds + 1>;

// How many of the states each weight gets: at least one if it occurs, in proportion otherwise.
Shares shares_of(const Weights& weights) {
    std::array<std::size_t, kWeightKinds + 1> counts{};
    for (std::size_t i = 0; i < weights.size; ++i) {
        ++counts[weights.of[i]];
    }
    Shares shares{};
    unsigned given = 0;
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        if (counts[kind] > 0) {
            shares[kind] = std::max(1U, static_cast<unsigned>(counts[kind] * kStates / weights.size));
            given += shares[kind];
        }
    }
    const auto most = std::max_element(shares.begin(), shares.end());
    *most += kStates - given;
    return shares;
}

// Section 4.1.1: each share takes as many bits as what is left of the states needs.
void write_shares(const Shares& shares, BitWriter& bits) {
    bits.add(kAccuracyLog - 5, 4);
    unsigned left = kStates;
    for (std::size_t kind = 0; left > 0; ++kind) {
        // 0 stands for "less than one", which is never used here.
        const unsigned value = shares[kind] + 1;
        const auto width = static_cast<unsigned>(std::bit_width(left + 1));
        const unsigned low_values = (1U << width) - 1 - (left + 1);
        const unsigned half = 1U << (width - 1);
        if (value < low_values) {
            bits.add(value, width - 1);
        } else {
            bits.add(value >= half ? value + low_values : value, width);
        }
        left -= shares[kind];
        if (shares[kind] == 0) {
            // How many more of share zero follow, two bits a time, 3 for "three and more".
            unsigned zeros = 0;
            while (shares[kind + 1 + zeros] == 0) {
                ++zeros;
            }
            kind += zeros;
            for (; zeros >= 3; zeros -= 3) {
                bits.add(3, 2);
            }
            bits.add(zeros, 2);
        }
    }
}

// The state table: which states stand for each weight, in ascending order (section 4.1.1, too).
using StatesByKind = std::array<std::array<std::uint8_t, kStates>, kWeightKinds + 1>;

StatesByKind spread(const Shares& shares) {
    std::array<std::uint8_t, kStates> table{};
    unsigned position = 0;
    for (std::size_t kind = 0; kind < shares.size(); ++kind) {
        for (unsigned i = 0; i < shares[kind]; ++i) {
            table[position] = static_cast<std::uint8_t>(kind);
            position = (position + (kStates >> 1) + (kStates >> 3) + 3) % kStates;
        }
    }
    StatesByKind states{};
    Shares seen{};
    for (unsigned state = 0; state < kStates; ++state) {
        const std::uint8_t kind = table[state];
        states[kind][seen[kind]++] = static_cast<std::uint8_t>(state);
    }
    return states;
}

// Two states take turns; what is read first is written last. The two last weights are the states to start from, and
// each is taken in its first state, whose change takes at least one bit, so that a reader sees the end.
void write_weights(const Weights& weights, const Shares& shares, BitWriter& bits) {
    const StatesByKind states = spread(shares);
    std::array<unsigned, 2> state{};
    for (std::size_t i = weights.size; i-- > 0;) {
        const std::uint8_t kind = weights.of[i];
        unsigned& current = state[i % 2];
        if (i + 2 >= weights.size) {
            current = kStates + states[kind][0];
            continue;
        }
        unsigned count = 0;
        while ((current >> count) >= 2 * shares[kind]) {
            ++count;
        }
        bits.add(current & ((1U << count) - 1), count);
        current = kStates + states[kind][(current >> count) - shares[kind]];
    }
    bits.add(state[1] - kStates, kAccuracyLog);
    bits.add(state[0] - kStates, kAccuracyLog);
    bits.add(1, 1);
}

std::size_t describe_by_states(const Weights& weights, MutableByteSpan out) {
    const Shares shares = shares_of(weights);
    if (weights.size < 2 || std::find(shares.begin(), shares.end(), kStates) != shares.end()) {
        return 0;
    }
    // One byte says how many follow, and 128 and more mean weights of 4 bits.
    const MutableByteSpan body = out.subspan(1, kMaxDirectWeights - 1);
    BitWriter share_bits(body);
    write_shares(shares, share_bits);
    const std::size_t shares_size = share_bits.finish();
    if (shares_size == 0) {
        return 0;
    }
    BitWriter weight_bits(body.subspan(shares_size));
    write_weights(weights, shares, weight_bits);
    const std::size_t weights_size = weight_bits.finish();
    if (weights_size == 0) {
        return 0;
    }
    out[0] = static_cast<std::byte>(shares_size + weights_size);
    return 1 + shares_size + weights_size;
}

std::size_t describe_directly(const Weights& weights, MutableByteSpan out) {
    out[0] = static_cast<std::byte>(127 + weights.size);
    for (std::size_t i = 0; i < weights.size; i += 2) {
        out[1 + i / 2] = static_cast<std::byte>(weights.of[i] << 4 | weights.of[i + 1]);
    }
    return 1 + (weights.size + 1) / 2;
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

std::size_t describe_huffman_tree(const HuffmanCode& code, MutableByteSpan out) {
    const Weights weights = weights_of(code);
    const std::size_t by_states = describe_by_states(weights, out);
    const bool direct = weights.size <= kMaxDirectWeights;
    if (direct && (by_states == 0 || by_states > 1 + (weights.size + 1) / 2)) {
        return describe_directly(weights, out);
    }
    return by_states;
}

}  // namespace ckptfs
