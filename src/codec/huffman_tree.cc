// SPDX-License-Identifier: Apache-2.0
// The tree description in front of zstd's Huffman streams: weights of 4 bits, or weights coded by a small finite state
// machine (RFC 8878, sections 4.1 and 4.2.1).
#include <algorithm>
#include <bit>
#include <vector>

#include "codec/huffman_code.h"

namespace ckptfs {
namespace {

constexpr unsigned kWeightKinds = kMaxCodeLength + 1;
// The highest accuracy that the format allows for weights.
constexpr unsigned kAccuracyLog = 6;
constexpr unsigned kStates = 1U << kAccuracyLog;
constexpr std::size_t kMaxDirectWeights = 128;

struct Weights {
    std::array<std::uint8_t, 256> of{};
    std::size_t size = 0;
};

// Of all symbols but the last, whose weight follows from the others.
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
