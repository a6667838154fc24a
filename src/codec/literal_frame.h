// SPDX-License-Identifier: Apache-2.0
// Standard zstd frames without matches: Huffman codes, and whole blocks for long runs of one byte.
//
// A float's plane has no matches worth looking for, but rows of zeros (moments of what was never used) in the middle of
// noise. Written here, and not by libzstd, because its encoder takes twice the time for the same codes and knows no
// runs without its match finder.
//
// A writer reuses its memory, and belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "ckptfs/bytes.h"
#include "codec/symbol_pairs.h"

namespace ckptfs {

class LiteralFrameWriter {
public:
    // Returns the bytes written, or 0 if the frame would not be smaller than `raw`, which is known only after bytes
    // were counted. raw: 1 byte to 1 MiB.
    std::size_t write(ByteSpan raw, MutableByteSpan out);

private:
    struct Piece {
        ByteSpan bytes;
        // All bytes are the same.
        bool run = false;
    };
    class Output;
    struct Codes;

    void write_chunk(ByteSpan chunk, Output& output);
    void find_pieces(ByteSpan chunk);
    [[nodiscard]] bool worth_coding() const;
    bool make_codes(Codes& codes);
    bool write_codes(ByteSpan bytes, Codes& codes, Output& output);

    std::vector<Piece> pieces_;
    std::vector<std::byte> scratch_;
    SymbolPairs pairs_;
};

}  // namespace ckptfs
