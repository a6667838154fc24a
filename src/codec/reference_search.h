// SPDX-License-Identifier: Apache-2.0
// Looks for floats of a frame that round to bf16 elements earlier in its file.
//
// Most floats have no such thing (moments, plain fp32): a small part of a frame is searched first, unless the frames
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
    // Offset of the first one in the frame.
    std::size_t begin = 0;
    std::size_t count = 0;
    // Offset of the bf16 in the file, and the same numbers, valid until the next search.
    std::uint64_t offset = 0;
    const std::uint16_t* rounded = nullptr;
    // Index of its first exception among all that the search found.
    std::size_t first_exception = 0;
    std::size_t exceptions = 0;

    [[nodiscard]] std::size_t end() const { return begin + 4 * count; }
};

class ReferenceSearch {
public:
    // Limit of all exceptions of a frame together.
    static constexpr std::size_t kMaxExceptions = 256;

    // Searches the frame at `offset` of its file, which is cut into these sub-blocks. Returns references in the order
    // of the frame, no more than a frame may have; valid until the next call.
    std::span<const FoundReference> find(ByteSpan raw, std::uint64_t offset, std::span<const SubBlock> blocks,
                                         ReferenceIndex& index);
    [[nodiscard]] std::span<const RoundingException> exceptions(const FoundReference& found) const {
        return std::span(exceptions_).subspan(found.first_exception, found.exceptions);
    }
    // Notes the bf16 in a sub-block of a frame to which others may refer. Called for each sub-block in turn, before its
    // bytes are used for something else, so that they are fetched from memory once.
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
