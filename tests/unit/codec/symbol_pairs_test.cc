// SPDX-License-Identifier: Apache-2.0
#include "codec/symbol_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codec/huffman_streams.h"
#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

constexpr std::uint8_t kCentres[] = {0, 3, 120, 255};

// Near `centre`, but for one byte in `outside`.
Bytes near(std::uint8_t centre, std::size_t size, std::size_t outside, std::mt19937_64& generator) {
    std::normal_distribution<double> normal(0, 3);
    Bytes bytes(size);
    for (std::byte& byte : bytes) {
        const int away = std::clamp(static_cast<int>(normal(generator)), -15, 15);
        const auto any = static_cast<std::uint8_t>(generator());
        byte = static_cast<std::byte>(outside > 0 && generator() % outside == 0 ? any : centre + away);
    }
    return bytes;
}

TEST(SymbolPairs, WriteWhatSingleBytesDoAndCountEnough) {
    std::mt19937_64 generator(1);
    SymbolPairs pairs;
    for (const std::size_t size : {64U, 65U, 127U, 128U, 129U, 1000U, 4095U, 65536U, 70001U}) {
        for (const std::size_t outside : {0U, 5000U, 300U, 10U}) {
            for (const std::uint8_t centre : kCentres) {
                const Bytes bytes = near(centre, size, outside, generator);
                ByteCounts expected{};
                expected[1] = 1;
                ByteCounts counts = expected;
                count_bytes(bytes, expected);
                pairs.prepare(bytes, static_cast<std::uint8_t>(centre - 16));
                pairs.count(counts);
                for (std::size_t value = 0; value < counts.size(); ++value) {
                    ASSERT_TRUE(counts[value] > 0 || expected[value] == 0) << value;
                }
                const std::uint64_t best = coded_bits(make_huffman_code(expected), expected);
                const std::uint64_t coded = coded_bits(make_huffman_code(counts), expected);
                ASSERT_LE(coded, best + best / (size < 4096 ? 5 : 50)) << size << " " << outside << " " << int{centre};

                const CodeWords words = code_words(make_huffman_code(counts));
                Bytes one_scratch(huffman_scratch(size));
                Bytes two_scratch(huffman_scratch(size));
                const auto one = write_huffman_streams(bytes, words, one_scratch);
                const auto two = pairs.write_streams(words, two_scratch);
                for (std::size_t s = 0; s < 4; ++s) {
                    ASSERT_TRUE(std::equal(one[s].begin(), one[s].end(), two[s].begin(), two[s].end()))
                        << size << " " << outside << " " << int{centre};
                }
            }
        }
    }
}

// Rows of a matrix, each with its own scale.
TEST(SymbolPairs, CountWhatStridesHoldAlike) {
    std::mt19937_64 generator(1);
    for (const std::size_t stride : {32U, 64U, 128U, 512U, 1024U}) {
        Bytes bytes(65536);
        std::normal_distribution<double> normal(0, 0.8);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const double centre = i / stride % 2 == 0 ? 8 : 24;
            bytes[i] = static_cast<std::byte>(std::clamp(static_cast<int>(centre + normal(generator)), 0, 31));
        }
        ByteCounts expected{};
        count_bytes(bytes, expected);
        ByteCounts counts{};
        SymbolPairs pairs;
        pairs.prepare(bytes, 0);
        pairs.count(counts);
        const std::uint64_t best = coded_bits(make_huffman_code(expected), expected);
        EXPECT_LE(coded_bits(make_huffman_code(counts), expected), best + best / 50) << stride;
    }
}

TEST(SymbolPairs, FindWhereAlmostAllBytesAre) {
    std::mt19937_64 generator(1);
    for (const std::uint8_t centre : kCentres) {
        const auto window = SymbolPairs::find_window(near(centre, 65536, 1000, generator));
        ASSERT_TRUE(window);
        EXPECT_NEAR(static_cast<std::int8_t>(centre - *window), 16, 8);
    }
    EXPECT_FALSE(SymbolPairs::find_window(near(100, 65536, 10, generator)));
    EXPECT_FALSE(SymbolPairs::find_window(testing::random_bytes(65536)));
}

}  // namespace
}  // namespace ckptfs
