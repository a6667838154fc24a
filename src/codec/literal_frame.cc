// SPDX-License-Identifier: Apache-2.0
#include "codec/literal_frame.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "codec/entropy.h"
#include "codec/huffman_code.h"
#include "codec/huffman_streams.h"
#include "codec/zstd_frames.h"

namespace ckptfs {
namespace {

// RFC 8878, section 3.1.1.
enum BlockType : std::uint32_t { kRawBlock = 0, kRleBlock = 1, kCompressedBlock = 2 };
enum LiteralsType : std::uint32_t { kWithTree = 2, kTreeless = 3 };
constexpr std::size_t kBlockHeader = 3;
constexpr std::size_t kJumpTable = 6;

// Bytes that share one tree. Smaller chunks follow changes better, but pay for their trees; a block holds no more than
// 128 KiB.
constexpr std::size_t kChunk = std::size_t{64} << 10;
// Runs are looked for by whole cells, at offsets that are multiples of it.
constexpr std::size_t kRunCell = 64;
// A run costs a block of its own, and the codes behind it a header and a jump table.
constexpr std::size_t kShortestRun = 192;
constexpr std::size_t kShortestCoded = 64;

// Mantissas of trained weights have 7.97 to 8 bits a byte; coding them costs time and saves nothing.
constexpr double kIncompressibleBits = 7.90;
// Codes have to save at least one part in this many.
constexpr std::size_t kSmallestGain = 100;
constexpr std::size_t kSampleRuns = 32;
constexpr std::size_t kSampleRun = 64;

bool is_constant_cell(const std::byte* cell) {
    std::uint64_t first = 0;
    std::memcpy(&first, cell, sizeof(first));
    return first == std::rotl(first, 8) && std::memcmp(cell, cell + 8, kRunCell - 8) == 0;
}

}  // namespace

class LiteralFrameWriter::Output {
public:
    explicit Output(MutableByteSpan out) : out_(out) {}

    void put(std::uint64_t value, std::size_t size) {
        if (has_room(size)) {
            std::memcpy(out_.data() + size_, &value, size);
            size_ += size;
        }
    }
    void put(ByteSpan bytes) {
        if (!bytes.empty() && has_room(bytes.size())) {
            std::memcpy(out_.data() + size_, bytes.data(), bytes.size());
            size_ += bytes.size();
        }
    }
    void begin_block(BlockType type, std::size_t block_size) {
        last_block_ = size_;
        put(std::uint64_t{type} << 1 | std::uint64_t{block_size} << 3, kBlockHeader);
    }
    // The bytes written; 0 if anything did not fit.
    std::size_t finish() {
        if (!fits_) {
            return 0;
        }
        out_[last_block_] |= std::byte{1};
        return size_;
    }

private:
    bool has_room(std::size_t size) {
        fits_ = fits_ && size <= out_.size() - size_;
        return fits_;
    }

    MutableByteSpan out_;
    std::size_t size_ = 0;
    std::size_t last_block_ = 0;
    bool fits_ = true;
};

// The codes of a chunk. Its tree is in front of the codes that are written first.
struct LiteralFrameWriter::Codes {
    CodeWords words;
    std::array<std::byte, kMaxTreeDescription> tree_bytes;
    ByteSpan tree;
    bool tree_is_written = false;
    // The chunk's only piece is in pairs_.
    bool in_pairs = false;
};

std::size_t LiteralFrameWriter::write(ByteSpan raw, MutableByteSpan out) {
    Output output(out.first(std::min(out.size(), raw.size())));
    output.put(kZstdMagic, 4);
    // One segment, with a content size of two bytes (less 256) or four.
    if (raw.size() < 256) {
        output.put(0x20 | raw.size() << 8, 2);
    } else if (raw.size() < 65536 + 256) {
        output.put(0x60 | (raw.size() - 256) << 8, 3);
    } else {
        output.put(0xa0 | raw.size() << 8, 5);
    }
    while (!raw.empty()) {
        const std::size_t size = raw.size() < kChunk + kChunk / 2 ? raw.size() : kChunk;
        write_chunk(raw.first(size), output);
        raw = raw.subspan(size);
    }
    return output.finish();
}

void LiteralFrameWriter::write_chunk(ByteSpan chunk, Output& output) {
    find_pieces(chunk);
    Codes codes;
    // If there is no run, the caller has seen that codes are worthwhile.
    const bool coded = (pieces_.size() == 1 || worth_coding()) && make_codes(codes);
    for (const Piece& piece : pieces_) {
        if (piece.run) {
            output.begin_block(kRleBlock, piece.bytes.size());
            output.put(piece.bytes.first(1));
        } else if (!coded || !write_codes(piece.bytes, codes, output)) {
            output.begin_block(kRawBlock, piece.bytes.size());
            output.put(piece.bytes);
        }
    }
}

void LiteralFrameWriter::find_pieces(ByteSpan chunk) {
    pieces_.clear();
    std::size_t begin = 0;
    for (std::size_t i = 0; i + kShortestRun <= chunk.size();) {
        if (!is_constant_cell(chunk.data() + i)) {
            i += kRunCell;
            continue;
        }
        const std::byte byte = chunk[i];
        std::size_t run_begin = i;
        while (run_begin > begin && chunk[run_begin - 1] == byte) {
            --run_begin;
        }
        std::size_t run_end = i + kRunCell;
        while (run_end < chunk.size() && chunk[run_end] == byte) {
            ++run_end;
        }
        i = (run_end + kRunCell - 1) / kRunCell * kRunCell;
        if (run_end - run_begin < kShortestRun) {
            continue;
        }
        if (run_begin > begin) {
            pieces_.push_back({chunk.subspan(begin, run_begin - begin), false});
        }
        pieces_.push_back({chunk.subspan(run_begin, run_end - run_begin), true});
        begin = run_end;
    }
    if (begin < chunk.size()) {
        pieces_.push_back({chunk.subspan(begin), false});
    }
}

bool LiteralFrameWriter::worth_coding() const {
    std::size_t size = 0;
    for (const Piece& piece : pieces_) {
        size += piece.run ? 0 : piece.bytes.size();
    }
    const std::size_t step = std::max(size / kSampleRuns, kSampleRun);
    ByteCounts counts{};
    std::size_t next = 0;
    for (const Piece& piece : pieces_) {
        if (piece.run) {
            continue;
        }
        for (; next < piece.bytes.size(); next += step) {
            for (const std::byte byte : piece.bytes.subspan(next, std::min(kSampleRun, piece.bytes.size() - next))) {
                ++counts[std::to_integer<std::size_t>(byte)];
            }
        }
        next -= piece.bytes.size();
    }
    return bits_per_byte(counts) < kIncompressibleBits;
}

// False where codes would save nothing.
bool LiteralFrameWriter::make_codes(Codes& codes) {
    ByteCounts counts{};
    std::size_t size = 0;
    for (const Piece& piece : pieces_) {
        if (piece.run || piece.bytes.size() < kShortestCoded) {
            continue;
        }
        size += piece.bytes.size();
        if (const auto window = pieces_.size() == 1 ? SymbolPairs::find_window(piece.bytes) : std::nullopt) {
            pairs_.prepare(piece.bytes, *window);
            pairs_.count(counts);
            codes.in_pairs = true;
        } else {
            count_bytes(piece.bytes, counts);
        }
    }
    if (std::count(counts.begin(), counts.end(), 0U) > 254) {
        return false;
    }
    const HuffmanCode code = make_huffman_code(counts);
    if (!is_complete(code)) {
        return false;
    }
    codes.tree = ByteSpan(codes.tree_bytes).first(describe_huffman_tree(code, codes.tree_bytes));
    codes.words = code_words(code);
    const std::size_t coded_size = coded_bits(code, counts) / 8 + codes.tree.size();
    return !codes.tree.empty() && coded_size + size / kSmallestGain < size;
}

// Writes a compressed block; or nothing, and returns false, if it would not be smaller than its bytes.
bool LiteralFrameWriter::write_codes(ByteSpan bytes, Codes& codes, Output& output) {
    const std::size_t size = bytes.size();
    if (size < kShortestCoded) {
        return false;
    }
    scratch_.resize(std::max(scratch_.size(), huffman_scratch(size)));
    const MutableByteSpan scratch = MutableByteSpan(scratch_).first(huffman_scratch(size));
    const auto streams = codes.in_pairs ? pairs_.write_streams(codes.words, scratch)
                                        : write_huffman_streams(bytes, codes.words, scratch);
    const ByteSpan tree = codes.tree_is_written ? ByteSpan() : codes.tree;
    std::size_t coded_size = tree.size() + kJumpTable;
    for (const ByteSpan stream : streams) {
        coded_size += stream.size();
    }
    // Sizes of literals take 10, 14 or 18 bits.
    const unsigned format = size < 1024 ? 1 : size < 16384 ? 2 : 3;
    const unsigned size_bits = 6 + 4 * format;
    const std::size_t header_size = 2 + format;
    // After the literals, one byte says that there are no sequences.
    const std::size_t block_size = header_size + coded_size + 1;
    if (block_size >= size) {
        return false;
    }
    output.begin_block(kCompressedBlock, block_size);
    output.put((codes.tree_is_written ? kTreeless : kWithTree) | format << 2 | std::uint64_t{size} << 4 |
                   std::uint64_t{coded_size} << (4 + size_bits),
               header_size);
    output.put(tree);
    for (std::size_t s = 0; s < 3; ++s) {
        output.put(streams[s].size(), 2);
    }
    for (const ByteSpan stream : streams) {
        output.put(stream);
    }
    output.put(0, 1);
    codes.tree_is_written = true;
    return true;
}

}  // namespace ckptfs
