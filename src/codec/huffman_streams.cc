// SPDX-License-Identifier: Apache-2.0
#include "codec/huffman_streams.h"

#include <cstdint>
#include <cstring>

#include "codec/huffman_bits.h"

namespace ckptfs {
namespace {

// Symbols between two stores of whole bytes: 5 * 11 bits and the 7 that may be left from before fit a word.
constexpr std::size_t kRound = 5;

CKPTFS_INLINE void add_round(HuffmanBits& stream, const std::uint8_t* end, const std::uint64_t* words) {
    stream.add_quickly(words[end[-1]]);
    stream.add_quickly(words[end[-2]]);
    stream.add_quickly(words[end[-3]]);
    stream.add_quickly(words[end[-4]]);
    stream.add(words[end[-5]]);
    stream.flush();
}

struct Targets {
    std::array<std::byte*, 4> begins;
};

CKPTFS_INLINE std::array<std::size_t, 4> write_streams(const std::uint8_t* bytes, std::size_t size,
                                                       const std::uint64_t* words, const Targets& targets) {
    const std::size_t quarter = (size + 3) / 4;
    const std::size_t last = size - 3 * quarter;
    const std::size_t rounds = last / kRound;
    std::array<HuffmanBits, 4> streams;
    for (std::size_t s = 0; s < 4; ++s) {
        streams[s] = HuffmanBits(targets.begins[s]);
        const std::uint8_t* const begin = bytes + s * quarter;
        for (const std::uint8_t* end = begin + (s == 3 ? last : quarter); end != begin + rounds * kRound; --end) {
            streams[s].add(words[end[-1]]);
            streams[s].flush();
        }
    }
    // Two at a time: one alone waits for its own shifts, four do not fit the registers.
    for (std::size_t s = 0; s < 4; s += 2) {
        HuffmanBits even = streams[s];
        HuffmanBits odd = streams[s + 1];
        const std::uint8_t* end = bytes + s * quarter + rounds * kRound;
        for (std::size_t round = 0; round < rounds; ++round) {
            add_round(even, end, words);
            add_round(odd, end + quarter, words);
            end -= kRound;
        }
        streams[s] = even;
        streams[s + 1] = odd;
    }
    std::array<std::size_t, 4> sizes{};
    for (std::size_t s = 0; s < 4; ++s) {
        sizes[s] = static_cast<std::size_t>(streams[s].finish() - targets.begins[s]);
    }
    return sizes;
}

std::array<std::size_t, 4> portable_streams(const std::uint8_t* bytes, std::size_t size, const std::uint64_t* words,
                                            const Targets& targets) {
    return write_streams(bytes, size, words, targets);
}

#if defined(__x86_64__)
// BMI2 shifts by any register, and leaves the flags alone.
[[gnu::target("bmi2")]] std::array<std::size_t, 4> bmi2_streams(const std::uint8_t* bytes, std::size_t size,
                                                                const std::uint64_t* words, const Targets& targets) {
    return write_streams(bytes, size, words, targets);
}
#endif

auto* fastest_streams() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("bmi2") != 0 ? bmi2_streams : portable_streams;
#else
    return portable_streams;
#endif
}

}  // namespace

void count_bytes(ByteSpan bytes, ByteCounts& counts) {
    // Four tables, so that equal neighbours do not wait for each other.
    std::array<ByteCounts, 4> parts{};
    const std::byte* next = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, next, sizeof(word));
        next += sizeof(word);
        ++parts[0][word & 0xff];
        ++parts[1][(word >> 8) & 0xff];
        ++parts[2][(word >> 16) & 0xff];
        ++parts[3][(word >> 24) & 0xff];
        ++parts[0][(word >> 32) & 0xff];
        ++parts[1][(word >> 40) & 0xff];
        ++parts[2][(word >> 48) & 0xff];
        ++parts[3][word >> 56];
    }
    for (; left > 0; --left) {
        ++parts[0][std::to_integer<std::size_t>(*next++)];
    }
    for (std::size_t byte = 0; byte < counts.size(); ++byte) {
        counts[byte] += parts[0][byte] + parts[1][byte] + parts[2][byte] + parts[3][byte];
    }
}

std::array<ByteSpan, 4> write_huffman_streams(ByteSpan bytes, const CodeWords& words, MutableByteSpan scratch) {
    static const auto write = fastest_streams();
    const std::size_t quarter = scratch.size() / 4;
    Targets targets{};
    for (std::size_t s = 0; s < 4; ++s) {
        targets.begins[s] = scratch.data() + s * quarter;
    }
    const std::array<std::size_t, 4> sizes =
        write(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), words.data(), targets);
    std::array<ByteSpan, 4> streams;
    for (std::size_t s = 0; s < 4; ++s) {
        streams[s] = {targets.begins[s], sizes[s]};
    }
    return streams;
}

}  // namespace ckptfs
