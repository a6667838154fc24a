// SPDX-License-Identifier: Apache-2.0
// Bytes as checkpoints hold them, made from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ckptfs/bytes.h"

namespace ckptfs::testing {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& bytes, const void* data, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
}

inline Bytes random_bytes(std::size_t size, std::uint64_t seed = 1) {
    std::mt19937_64 generator(seed);
    Bytes bytes(size);
    for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(generator());
    }
    return bytes;
}

// Numbers spread as the weights of a trained layer are.
inline std::vector<float> weights(std::size_t count, std::uint64_t seed = 1) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal(0.0F, 0.03F);
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return normal(generator); });
    return values;
}

inline Bytes fp32(std::size_t size, std::uint64_t seed = 1) {
    Bytes bytes;
    const auto values = weights(size / 4 + 1, seed);
    append(bytes, values.data(), values.size() * 4);
    bytes.resize(size);
    return bytes;
}

inline Bytes bf16(std::size_t size, std::uint64_t seed = 1) {
    Bytes bytes;
    for (const float value : weights(size / 2 + 1, seed)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        const auto upper = static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        append(bytes, &upper, sizeof(upper));
    }
    bytes.resize(size);
    return bytes;
}

inline Bytes fp16(std::size_t size, std::uint64_t seed = 1) {
    Bytes bytes;
    for (const float value : weights(size / 2 + 1, seed)) {
        // Weights are in the range of normal numbers; smaller ones become zero.
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        const auto exponent = static_cast<int>((bits >> 23) & 0xff) - 127 + 15;
        const std::uint32_t magnitude =
            exponent <= 0 ? 0 : static_cast<std::uint32_t>(exponent) << 10 | ((bits >> 13) & 0x3ff);
        const auto half = static_cast<std::uint16_t>((bits >> 16 & 0x8000) | magnitude);
        append(bytes, &half, sizeof(half));
    }
    bytes.resize(size);
    return bytes;
}

inline Bytes fp64(std::size_t size, std::uint64_t seed = 1) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal(0.0, 0.03);
    Bytes bytes;
    while (bytes.size() < size) {
        const double value = normal(generator);
        append(bytes, &value, sizeof(value));
    }
    bytes.resize(size);
    return bytes;
}

inline Bytes text(std::size_t size) {
    static constexpr const char* kWords[] = {"the ",  "model ", "was ", "saved ", "after ", "step ", "and ", "loss ",
                                             "fell ", "to ",    "a ",   "lower ", "value ", "of ",   "it ",  ".\n"};
    std::mt19937_64 generator(1);
    std::string words;
    while (words.size() < size) {
        words += kWords[generator() % std::size(kWords)];
    }
    Bytes bytes;
    append(bytes, words.data(), size);
    return bytes;
}

inline Bytes token_ids(std::size_t size) {
    std::mt19937_64 generator(1);
    std::geometric_distribution<std::int64_t> ids(0.001);
    Bytes bytes;
    while (bytes.size() < size) {
        const std::int64_t id = ids(generator);
        append(bytes, &id, sizeof(id));
    }
    bytes.resize(size);
    return bytes;
}

inline Bytes joined(std::initializer_list<Bytes> pieces) {
    Bytes all;
    for (const Bytes& piece : pieces) {
        all.insert(all.end(), piece.begin(), piece.end());
    }
    return all;
}

}  // namespace ckptfs::testing
