// SPDX-License-Identifier: Apache-2.0
#include "codec/symbol_pairs.h"

#include <algorithm>
#include <cstring>

#include "codec/huffman_bits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ckptfs {
namespace {

constexpr std::size_t kWindow = 32;
constexpr std::size_t kBlock = 32;
constexpr std::size_t kBlockPairs = kBlock / 2;
constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 64;
// One byte in this many may be outside: its block is coded byte by byte.
constexpr std::size_t kOutside = 64;

// Where a stream begins, and how many whole blocks it has; what is left over at its end is coded byte by byte.
struct Quarter {
    const std::uint8_t* bytes;
    std::size_t size;
    std::size_t blocks;
    // Blocks of all streams before this one.
    std::size_t blocks_before;
};

std::array<Quarter, 4> quarters_of(ByteSpan bytes) {
    const std::size_t quarter = (bytes.size() + 3) / 4;
    std::array<Quarter, 4> quarters{};
    for (std::size_t s = 0; s < 4; ++s) {
        const std::size_t size = s == 3 ? bytes.size() - 3 * quarter : quarter;
        quarters[s] = {reinterpret_cast<const std::uint8_t*>(bytes.data()) + s * quarter, size, size / kBlock,
                       s * (quarter / kBlock)};
    }
    return quarters;
}

// Half of all blocks, by the Thue-Morse sequence, with which no stride of a tensor coincides.
constexpr std::uint64_t kCountedBlocks = 0x9669699669969669;
constexpr std::uint32_t kPerCounted = 2;

using PlaceRange = SymbolPairs::PlaceRange;
using FindPairs = PlaceRange (*)(const std::uint8_t* bytes, std::size_t blocks, std::uint8_t window,
                                 std::uint16_t* pairs, std::uint8_t* inside);

PlaceRange portable_pairs(const std::uint8_t* bytes, std::size_t blocks, std::uint8_t window, std::uint16_t* pairs,
                          std::uint8_t* inside) {
    PlaceRange range{kWindow - 1, 0};
    for (std::size_t block = 0; block < blocks; ++block, bytes += kBlock, pairs += kBlockPairs) {
        bool all = true;
        for (std::size_t i = 0; i < kBlockPairs; ++i) {
            const auto low = static_cast<std::uint8_t>(bytes[2 * i] - window);
            const auto high = static_cast<std::uint8_t>(bytes[2 * i + 1] - window);
            all = all && low < kWindow && high < kWindow;
            const auto first = static_cast<std::uint8_t>(low & (kWindow - 1));
            const auto second = static_cast<std::uint8_t>(high & (kWindow - 1));
            pairs[i] = static_cast<std::uint16_t>(first + second * kWindow);
            range.least = std::min({range.least, first, second});
            range.most = std::max({range.most, first, second});
        }
        inside[block] = all ? 1 : 0;
    }
    return range;
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] PlaceRange avx2_pairs(const std::uint8_t* bytes, std::size_t blocks, std::uint8_t window,
                                              std::uint16_t* pairs, std::uint8_t* inside) {
    const __m256i first = _mm256_set1_epi8(static_cast<char>(window));
    const __m256i low_bits = _mm256_set1_epi8(kWindow - 1);
    const __m256i one_and_window = _mm256_set1_epi16(kWindow << 8 | 1);
    __m256i least = low_bits;
    __m256i most = _mm256_setzero_si256();
    for (std::size_t block = 0; block < blocks; ++block) {
        const auto* source = reinterpret_cast<const __m256i*>(bytes + block * kBlock);
        const __m256i places = _mm256_sub_epi8(_mm256_loadu_si256(source), first);
        const __m256i within = _mm256_and_si256(places, low_bits);
        inside[block] = _mm256_movemask_epi8(_mm256_cmpeq_epi8(places, within)) == -1 ? 1 : 0;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + block * kBlockPairs),
                            _mm256_maddubs_epi16(within, one_and_window));
        least = _mm256_min_epu8(least, within);
        most = _mm256_max_epu8(most, within);
    }
    std::array<std::uint8_t, kBlock> all_least{};
    std::array<std::uint8_t, kBlock> all_most{};
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(all_least.data()), least);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(all_most.data()), most);
    return {*std::min_element(all_least.begin(), all_least.end()), *std::max_element(all_most.begin(), all_most.end())};
}
#endif

FindPairs fastest_find_pairs() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") != 0 ? avx2_pairs : portable_pairs;
#else
    return portable_pairs;
#endif
}

// One stream, written from its end to its beginning.
struct Writer {
    HuffmanBits bits;
    const Quarter* quarter;
    const std::uint16_t* pairs;
    const std::uint8_t* inside;
};

CKPTFS_INLINE void write_bytes(Writer& writer, std::size_t begin, std::size_t end, const std::uint64_t* words) {
    while (end > begin) {
        writer.bits.add(words[writer.quarter->bytes[--end]]);
        writer.bits.flush();
    }
}

CKPTFS_INLINE void write_pairs(Writer& a, Writer& b, std::size_t block, const std::uint64_t* pair_words) {
    const std::uint16_t* a_pairs = a.pairs + block * kBlockPairs;
    const std::uint16_t* b_pairs = b.pairs + block * kBlockPairs;
    for (std::size_t i = kBlockPairs; i > 0; i -= 2) {
        a.bits.add_quickly(pair_words[a_pairs[i - 1]]);
        b.bits.add_quickly(pair_words[b_pairs[i - 1]]);
        a.bits.add_quickly(pair_words[a_pairs[i - 2]]);
        b.bits.add_quickly(pair_words[b_pairs[i - 2]]);
        a.bits.flush();
        b.bits.flush();
    }
}

CKPTFS_INLINE void write_blocks(Writer& a, Writer& b, std::size_t block, const std::uint64_t* words) {
    const std::uint8_t* const a_bytes = a.quarter->bytes + block * kBlock;
    const std::uint8_t* const b_bytes = b.quarter->bytes + block * kBlock;
    for (std::size_t end = kBlock; end > 0; end -= 4) {
        for (std::size_t i = 1; i <= 4; ++i) {
            a.bits.add_quickly(words[a_bytes[end - i]]);
            b.bits.add_quickly(words[b_bytes[end - i]]);
        }
        a.bits.flush();
        b.bits.flush();
    }
}

CKPTFS_INLINE void write_two(Writer& a_in, Writer& b_in, const std::uint64_t* words, const std::uint64_t* pair_words) {
    Writer a = a_in;
    Writer b = b_in;
    // The last stream may be shorter.
    const std::size_t blocks = std::min(a.quarter->blocks, b.quarter->blocks);
    write_bytes(a, blocks * kBlock, a.quarter->size, words);
    write_bytes(b, blocks * kBlock, b.quarter->size, words);
    for (std::size_t block = blocks; block-- > 0;) {
        if ((a.inside[block] & b.inside[block]) != 0) {
            write_pairs(a, b, block, pair_words);
        } else {
            write_blocks(a, b, block, words);
        }
    }
    a_in = a;
    b_in = b;
}

using WriteAll = void (*)(std::array<Writer, 4>& writers, const std::uint64_t* words, const std::uint64_t* pair_words);

void portable_write(std::array<Writer, 4>& writers, const std::uint64_t* words, const std::uint64_t* pair_words) {
    write_two(writers[0], writers[1], words, pair_words);
    write_two(writers[2], writers[3], words, pair_words);
}

#if defined(__x86_64__)
[[gnu::target("bmi2")]] void bmi2_write(std::array<Writer, 4>& writers, const std::uint64_t* words,
                                        const std::uint64_t* pair_words) {
    write_two(writers[0], writers[1], words, pair_words);
    write_two(writers[2], writers[3], words, pair_words);
}
#endif

WriteAll fastest_write() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("bmi2") != 0 ? bmi2_write : portable_write;
#else
    return portable_write;
#endif
}

}  // namespace

std::optional<std::uint8_t> SymbolPairs::find_window(ByteSpan bytes) {
    ByteCounts counts{};
    std::size_t total = 0;
    const std::size_t step = std::max(bytes.size() / kSampleRuns, kSampleRun);
    for (std::size_t i = 0; i < bytes.size(); i += step) {
        for (const std::byte byte : bytes.subspan(i, std::min(kSampleRun, bytes.size() - i))) {
            ++counts[std::to_integer<std::size_t>(byte)];
            ++total;
        }
    }
    // A window may wrap from 255 to 0, as centred bytes do.
    std::size_t inside = 0;
    for (std::size_t i = 0; i < kWindow; ++i) {
        inside += counts[i];
    }
    std::size_t most = 0;
    std::uint8_t best = 0;
    for (std::size_t first = 0; first < counts.size(); ++first) {
        if (inside > most) {
            most = inside;
            best = static_cast<std::uint8_t>(first);
        }
        inside = inside + counts[(first + kWindow) % counts.size()] - counts[first];
    }
    return total - most <= total / kOutside ? std::optional(best) : std::nullopt;
}

void SymbolPairs::prepare(ByteSpan bytes, std::uint8_t window) {
    static const FindPairs find_pairs = fastest_find_pairs();
    bytes_ = bytes;
    window_ = window;
    const std::array<Quarter, 4> quarters = quarters_of(bytes);
    const std::size_t blocks = quarters[3].blocks_before + quarters[3].blocks;
    pairs_.resize(std::max(pairs_.size(), blocks * kBlockPairs));
    inside_.resize(std::max(inside_.size(), blocks));
    places_ = {kWindow - 1, 0};
    for (const Quarter& quarter : quarters) {
        const PlaceRange found =
            find_pairs(quarter.bytes, quarter.blocks, window, pairs_.data() + quarter.blocks_before * kBlockPairs,
                       inside_.data() + quarter.blocks_before);
        places_ = {std::min(places_.least, found.least), std::max(places_.most, found.most)};
    }
}

void SymbolPairs::count(ByteCounts& counts) {
    pair_counts_.fill(0);
    for (const Quarter& quarter : quarters_of(bytes_)) {
        for (std::size_t block = 0; block < quarter.blocks; ++block) {
            const std::uint8_t* const bytes = quarter.bytes + block * kBlock;
            if (inside_[quarter.blocks_before + block] == 0) {
                for (std::size_t i = 0; i < kBlock; ++i) {
                    ++counts[bytes[i]];
                }
                continue;
            }
            if ((kCountedBlocks >> (block % 64) & 1) == 0) {
                continue;
            }
            const std::uint16_t* const pairs = pairs_.data() + (quarter.blocks_before + block) * kBlockPairs;
            // Two tables, so that equal neighbours do not wait for each other.
            for (std::size_t i = 0; i < kBlockPairs; i += 4) {
                ++pair_counts_[pairs[i]];
                ++pair_counts_[1024 + pairs[i + 1]];
                ++pair_counts_[pairs[i + 2]];
                ++pair_counts_[1024 + pairs[i + 3]];
            }
        }
        for (std::size_t i = quarter.blocks * kBlock; i < quarter.size; ++i) {
            ++counts[quarter.bytes[i]];
        }
    }
    for (std::size_t high = 0; high < kWindow; ++high) {
        for (std::size_t low = 0; low < kWindow; ++low) {
            const std::uint32_t both = pair_counts_[high * kWindow + low] + pair_counts_[1024 + high * kWindow + low];
            counts[(window_ + low) % counts.size()] += both * kPerCounted;
            counts[(window_ + high) % counts.size()] += both * kPerCounted;
        }
    }
    for (std::size_t place = places_.least; place <= places_.most; ++place) {
        std::uint32_t& count = counts[(window_ + place) % counts.size()];
        count = std::max(count, 1U);
    }
}

std::array<ByteSpan, 4> SymbolPairs::write_streams(const CodeWords& words, MutableByteSpan scratch) {
    static const WriteAll write = fastest_write();
    for (std::size_t high = 0; high < kWindow; ++high) {
        const std::uint64_t second = words[(window_ + high) % words.size()];
        for (std::size_t low = 0; low < kWindow; ++low) {
            // The second byte is written first.
            const std::uint64_t first = words[(window_ + low) % words.size()];
            pair_words_[high * kWindow + low] = append_code(second, first);
        }
    }
    const std::array<Quarter, 4> quarters = quarters_of(bytes_);
    std::array<Writer, 4> writers;
    for (std::size_t s = 0; s < 4; ++s) {
        writers[s] = {HuffmanBits(scratch.data() + s * (scratch.size() / 4)), &quarters[s],
                      pairs_.data() + quarters[s].blocks_before * kBlockPairs,
                      inside_.data() + quarters[s].blocks_before};
    }
    write(writers, words.data(), pair_words_.data());
    std::array<ByteSpan, 4> streams;
    for (std::size_t s = 0; s < 4; ++s) {
        std::byte* const begin = scratch.data() + s * (scratch.size() / 4);
        streams[s] = {begin, static_cast<std::size_t>(writers[s].bits.finish() - begin)};
    }
    return streams;
}

}  // namespace ckptfs
