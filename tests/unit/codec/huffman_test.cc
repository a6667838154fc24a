// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/huffman_code.h"
#include "codec/literal_frame.h"
#include "unit/codec/float_data.h"

namespace ckptfs {
namespace {

using testing::Bytes;

ByteCounts random_counts(std::mt19937_64& generator, std::size_t symbols, double steepness) {
    ByteCounts counts{};
    for (std::size_t i = 0; i < symbols; ++i) {
        std::uint32_t& count = counts[generator() % counts.size()];
        count += 1 + static_cast<std::uint32_t>(std::exp(steepness * static_cast<double>(generator() % 1000) / 1000));
    }
    // Two at least.
    counts[3] += 1;
    counts[200] += 1;
    return counts;
}

TEST(HuffmanCode, IsCompleteAndNeverTooLong) {
    std::mt19937_64 generator(1);
    for (int i = 0; i < 3000; ++i) {
        const ByteCounts counts = random_counts(generator, generator() % 256, static_cast<double>(generator() % 20));
        const HuffmanCode code = make_huffman_code(counts);
        EXPECT_LE(code.max_length, kMaxCodeLength);
        std::uint32_t used = 0;
        for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
            EXPECT_EQ(code.lengths[symbol] > 0, counts[symbol] > 0);
            used += code.lengths[symbol] > 0 ? 1U << (kMaxCodeLength - code.lengths[symbol]) : 0;
        }
        ASSERT_EQ(used, 1U << kMaxCodeLength);
        EXPECT_TRUE(is_complete(code));
    }
}

TEST(HuffmanCode, OfFibonacciCountsIsCutToTheLimit) {
    ByteCounts counts{};
    std::uint32_t before = 1;
    std::uint32_t count = 1;
    for (std::size_t symbol = 0; symbol < 40; ++symbol) {
        counts[symbol] = count;
        count += std::exchange(before, count);
    }
    const HuffmanCode code = make_huffman_code(counts);
    EXPECT_EQ(code.max_length, kMaxCodeLength);
    EXPECT_EQ(code.lengths[39], 1);
}

TEST(HuffmanCode, WithAGapIsSeen) {
    ByteCounts counts{};
    counts[1] = 4;
    counts[2] = 2;
    counts[9] = 2;
    HuffmanCode code = make_huffman_code(counts);
    EXPECT_TRUE(is_complete(code));
    ++code.lengths[9];
    EXPECT_FALSE(is_complete(code));
    code.lengths[9] = 1;
    EXPECT_FALSE(is_complete(code));
}

TEST(HuffmanCode, CostsWhatItsLengthsSay) {
    ByteCounts counts{};
    counts[1] = 4;
    counts[2] = 2;
    counts[9] = 2;
    const HuffmanCode code = make_huffman_code(counts);
    EXPECT_EQ(coded_bits(code, counts), 4U + 2 * 2 + 2 * 2);
    const CodeWords words = code_words(code);
    EXPECT_EQ(words[1], std::uint64_t{1} << 63 | 1);
    EXPECT_EQ(words[2], std::uint64_t{2});
    EXPECT_EQ(words[9], std::uint64_t{1} << 62 | 2);
}

// What libzstd makes of a frame of ours; empty where no frame was made.
void expect_round_trip(LiteralFrameWriter& writer, const Bytes& raw, bool must_be_made) {
    Bytes stored(raw.size());
    stored.resize(writer.write(raw, stored));
    EXPECT_TRUE(!must_be_made || !stored.empty()) << raw.size();
    if (stored.empty()) {
        return;
    }
    EXPECT_LT(stored.size(), raw.size());
    EXPECT_EQ(ZSTD_getFrameContentSize(stored.data(), stored.size()), raw.size());
    EXPECT_EQ(ZSTD_findFrameCompressedSize(stored.data(), stored.size()), stored.size());
    Bytes back(raw.size());
    const std::size_t decoded = ZSTD_decompress(back.data(), back.size(), stored.data(), stored.size());
    ASSERT_EQ(decoded, raw.size()) << ZSTD_getErrorName(decoded);
    EXPECT_TRUE(back == raw);
}

Bytes drawn(const ByteCounts& counts, std::size_t size, std::mt19937_64& generator) {
    std::discrete_distribution<int> symbols(counts.begin(), counts.end());
    Bytes bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(symbols(generator)); });
    return bytes;
}

TEST(LiteralFrame, IsReadByLibzstdWhateverTheCodes) {
    std::mt19937_64 generator(1);
    LiteralFrameWriter writer;
    for (int i = 0; i < 150; ++i) {
        const ByteCounts counts = random_counts(generator, generator() % 256, static_cast<double>(generator() % 20));
        expect_round_trip(writer, drawn(counts, 1 + generator() % 70000, generator), false);
    }
}

TEST(LiteralFrame, IsMadeOfTwoSymbolsAndOfSymbolsFarApart) {
    LiteralFrameWriter writer;
    std::mt19937_64 generator(1);
    for (const unsigned second : {1U, 2U, 127U, 128U, 129U, 254U, 255U}) {
        ByteCounts counts{};
        counts[0] = 1;
        counts[second] = 1;
        for (const std::size_t size : {200U, 1023U, 1024U, 16383U, 16384U, 65536U, 98303U, 98304U, 200000U}) {
            expect_round_trip(writer, drawn(counts, size, generator), true);
        }
    }
}

TEST(LiteralFrame, RunsAmongNoiseAndAmongCodes) {
    LiteralFrameWriter writer;
    std::mt19937_64 generator(1);
    ByteCounts exponents{};
    for (std::size_t i = 0; i < 12; ++i) {
        exponents[110 + i] = 1U << i;
    }
    for (int i = 0; i < 60; ++i) {
        Bytes raw;
        while (raw.size() < 70000) {
            const std::size_t size = 1 + generator() % 3000;
            switch (generator() % 4) {
                case 0:
                    raw.resize(raw.size() + size, static_cast<std::byte>(generator() % 3));
                    break;
                case 1:
                    if (i % 2 == 0) {
                        raw = testing::joined({raw, testing::random_bytes(size, generator())});
                        break;
                    }
                    [[fallthrough]];
                default:
                    raw = testing::joined({raw, drawn(exponents, size, generator)});
            }
        }
        raw.resize(std::min<std::size_t>(raw.size(), 65536 + generator() % 4000));
        expect_round_trip(writer, raw, true);
    }
}

TEST(LiteralFrame, OfRandomBytesIsNotMade) {
    LiteralFrameWriter writer;
    for (const std::size_t size : {1U, 17U, 5000U, 65536U, 1U << 20}) {
        Bytes stored(size);
        EXPECT_EQ(writer.write(testing::random_bytes(size), stored), 0U);
    }
}

TEST(LiteralFrame, TakesNoMoreRoomThanItIsGiven) {
    LiteralFrameWriter writer;
    std::mt19937_64 generator(1);
    ByteCounts counts{};
    counts[0] = 1;
    counts[1] = 3;
    const Bytes raw = drawn(counts, 4000, generator);
    Bytes stored(raw.size());
    const std::size_t size = writer.write(raw, stored);
    ASSERT_GT(size, 0U);
    for (std::size_t room = 0; room < size; ++room) {
        Bytes small(room);
        EXPECT_EQ(writer.write(raw, small), 0U);
    }
}

}  // namespace
}  // namespace ckptfs
