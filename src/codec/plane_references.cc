// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_references.h"

#include <set>

#include "base/little_endian.h"
#include "base/text.h"
#include "codec/plane_frame_format.h"

namespace ckptfs {
namespace {

using namespace plane_format;

Failure damaged(const char* what) {
    return failure(EIO, format("plane frame: {}", what));
}

// Passes over a sub-block behind its header; what it refers to, if it does, goes to `references`.
bool pass(Reader& reader, const SubBlockHeader& header, std::vector<FileRange>& references) {
    const std::size_t count = (header.size - header.layout.phase) / header.layout.width;
    std::size_t rest = header.size - count * header.layout.width;
    if (header.reference) {
        ByteSpan reference;
        if (count == 0 || !reader.take(kReferenceHeader, reference)) {
            return false;
        }
        references.push_back({load_u64(reference.data()), 2 * count});
        rest += kExceptionSize * std::size_t{load_u32(reference.data() + 8)};
    }
    for (unsigned plane = 0; plane < stored_planes(header); ++plane) {
        std::uint32_t word = 0;
        if (!reader.take_word(word)) {
            return false;
        }
        rest += packed_number(word);
    }
    return reader.skip(rest);
}

bool lie_before(const std::vector<FileRange>& references, std::uint64_t offset) {
    std::set<std::uint64_t> frames;
    for (const FileRange& range : references) {
        if (range.size > offset || range.offset > offset - range.size) {
            return false;
        }
        for (std::uint64_t at = range.offset / kFrameSize; at * kFrameSize < range.end(); ++at) {
            frames.insert(at);
        }
    }
    return frames.size() <= kMaxReferencedFrames;
}

}  // namespace

Result<std::vector<FileRange>> plane_references(ByteSpan frame, std::uint64_t offset) {
    Reader reader(frame);
    std::uint32_t version_and_size = 0;
    if (!reader.skip(sizeof(kMagic)) || !reader.take_word(version_and_size)) {
        return damaged("ends too early");
    }
    if (packed_number(version_and_size) > kFrameSize) {
        return damaged("larger than a frame can be");
    }
    std::vector<FileRange> references;
    for (std::size_t left = packed_number(version_and_size); left > 0;) {
        std::uint32_t word = 0;
        if (!reader.take_word(word)) {
            return damaged("ends too early");
        }
        const SubBlockHeader header = header_of(word);
        if (impossible(header) || header.size > left) {
            return damaged("an invalid sub-block");
        }
        if (!pass(reader, header, references)) {
            return damaged("ends too early");
        }
        if (references.size() > kMaxReferences) {
            return damaged("too many references");
        }
        left -= header.size;
    }
    if (!lie_before(references, offset)) {
        return damaged("refers to bytes that are not before it, or to too many frames");
    }
    return references;
}

}  // namespace ckptfs
