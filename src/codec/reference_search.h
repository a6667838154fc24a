// SPDX-License-Identifier: Apache-2.0
// Looks for floats of a frame that round to bf16 which stands earlier in its file.
//
// Most floats have no such thing (moments, plain fp32): a small part of a frame is looked at first, unless the frames
// before it had some.
//
// A ReferenceSearch holds memory that frames reuse, and belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckptfs/bytes.h"
#include "codec/bf16.h"
#include "codec/plane_layout.h"
#include "codec/reference_index.h"

namespace ckptfs {

// Floats that may be stored as a reference sub-block.
struct FoundReference {
    // Where the first lies in the frame.
    std::size_t begin = 0;
    std::size_t count = 0;
    // Where the bf16 lies in the file, and the same numbers; they last until the next search.
    std::uint64_t offset = 0;
    const std::uint16_t* rounded = nullptr;
    // Of all that the search found: its own begin here.
    std::size_t first_exception = 0;
    std::size_t exceptions = 0;

    [[nodiscard]] std::size_t end() const { return begin + 4 * count; }
};

class ReferenceSearch {
public:
    // All exceptions of a frame together.
    static constexpr std::size_t kMaxExceptions = 256;

    // Of the frame that lies at `offset` of its file, cut into these sub-blocks. In the order of the frame, and as few
    // as a frame may have; valid until the next call.
    std::span<const FoundReference> find(ByteSpan raw, std::uint64_t offset, std::span<const SubBlock> blocks,
                                         ReferenceIndex& index);
    [[nodiscard]] std::span<const RoundingException> exceptions(const FoundReference& found) const {
        return std::span(exceptions_).subspan(found.first_exception, found.exceptions);
    }
    // Of a frame to which others may refer: notes what a sub-block has of bf16. Each in turn, before its bytes are used
    // for something else, so that they are fetched from memory once.
    void note(ByteSpan raw, std::uint64_t offset, const SubBlock& block);
    // Adds what was noted to the index.
    void remember(ReferenceIndex& index);

private:
    class Frame;

    std::vector<std::uint16_t> rounded_;
    std::vector<FoundReference> found_;
    std::vector<RoundingException> exceptions_;
    std::vector<ReferenceIndex::Piece> pieces_;
};

}  // namespace ckptfs
