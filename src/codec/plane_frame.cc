// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_frame.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "base/little_endian.h"
#include "base/text.h"
#include "codec/bf16.h"
#include "codec/plane_bits.h"
#include "codec/plane_coding.h"
#include "codec/plane_frame_format.h"
#include "codec/plane_layout.h"
#include "codec/plane_split.h"
#include "codec/reference_search.h"

namespace ckptfs {
namespace {

using namespace plane_format;

// Headers of all sub-blocks that plan_sub_blocks() can make of one frame, and room that libzstd likes to have.
constexpr std::size_t kBoundOverRaw = 1024;
// Headers of a reference sub-block, and of the pieces that it makes of an ordinary one.
constexpr std::size_t kBoundPerReference = 96;
// What is left between references is stored raw if it is smaller than this.
constexpr std::size_t kSmallestPiece = 64;

Failure damaged(const char* what) {
    return failure(EIO, format("plane frame: {}", what));
}

struct Elements {
    std::size_t count = 0;
    // Bytes in front of the first whole element.
    std::size_t leading = 0;
    // Bytes behind the last whole element.
    std::size_t trailing = 0;
};

// [begin, end) of a sub-block that was cut between two elements.
SubBlock piece_of(const SubBlock& block, std::size_t begin, std::size_t end) {
    SubBlock piece = block;
    piece.offset = begin;
    piece.size = end - begin;
    if (begin > block.offset) {
        piece.layout.phase = 0;
    }
    if (piece.size < block.size && piece.size < kSmallestPiece) {
        piece.kind = SubBlockKind::kRandom;
        piece.layout = {};
    }
    return piece;
}

Elements elements_of(std::size_t size, const PlaneLayout& layout) {
    return {(size - layout.phase) / layout.width, layout.phase, (size - layout.phase) % layout.width};
}

// Skips a sub-block whose header has been read; what it refers to, if it does, goes to `references`.
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

struct PlaneCoder::Memory {
    PlaneBlockCoder blocks;
    std::vector<SubBlock> sub_blocks;
    std::vector<std::byte> planes = std::vector<std::byte>(kMaxPlaneFrameRaw);

    ReferenceSearch search;

    [[nodiscard]] bool plan(ByteSpan raw);
    // Encodes the sub-blocks, with references in place of what was found elsewhere. `begin` is called before each
    // sub-block.
    template <class Begin>
    std::size_t encode_all(ByteSpan raw, std::span<const FoundReference> found, MutableByteSpan out, Begin begin);
    std::size_t encode(const SubBlock& block, ByteSpan raw, MutableByteSpan out);
    std::size_t encode_reference(const FoundReference& found, ByteSpan raw, MutableByteSpan out);
    std::size_t encode_elements(const SubBlock& block, ByteSpan raw, MutableByteSpan out);
    // Both decode a sub-block whose header has been read.
    Status decode(Reader& reader, const PlaneLayout& layout, MutableByteSpan raw);
    Status decode_reference(Reader& reader, const PlaneLayout& layout, const Payload& bf16, MutableByteSpan raw);
    // Decodes the headers of `width` planes, the edges, and the bodies.
    Status decode_planes(Reader& reader, Elements elements, unsigned width, MutableByteSpan raw,
                         std::array<const std::byte*, kMaxElementWidth>& plane);
};

PlaneCoder::PlaneCoder() : memory_(std::make_unique<Memory>()) {}
PlaneCoder::~PlaneCoder() = default;

std::size_t PlaneCoder::bound(std::size_t raw_size) {
    return raw_size + kBoundOverRaw;
}

std::size_t PlaneCoder::bound_in_file(std::size_t raw_size) {
    return bound(raw_size) + kMaxReferences * kBoundPerReference + ReferenceSearch::kMaxExceptions * kExceptionSize;
}

template <class Begin>
std::size_t PlaneCoder::Memory::encode_all(ByteSpan raw, std::span<const FoundReference> found, MutableByteSpan out,
                                           Begin begin) {
    store_u32(out.data(), kMagic);
    store_u32(out.data() + 4, packed(kVersion, raw.size()));
    std::size_t written = kFrameHeader;
    // Bytes of the frame that have been encoded.
    std::size_t done = 0;
    const auto encode_until = [&](const SubBlock& block, std::size_t end) {
        if (done < end) {
            const SubBlock piece = piece_of(block, done, end);
            written += encode(piece, raw.subspan(piece.offset, piece.size), out.subspan(written));
            done = end;
        }
    };
    for (const SubBlock& block : sub_blocks) {
        begin(block);
        const std::size_t end = block.offset + block.size;
        while (!found.empty() && found.front().begin < end) {
            encode_until(block, found.front().begin);
            written += encode_reference(found.front(), raw, out.subspan(written));
            done = found.front().end();
            found = found.subspan(1);
        }
        encode_until(block, end);
    }
    return written + raw.size() / 100 < raw.size() ? written : 0;
}

std::size_t PlaneCoder::encode(ByteSpan raw, MutableByteSpan out) {
    return memory_->plan(raw) ? memory_->encode_all(raw, {}, out, [](const SubBlock& /*block*/) {}) : 0;
}

PlaneCoder::Encoded PlaneCoder::encode_in_file(ByteSpan raw, std::uint64_t offset, ReferenceIndex& index,
                                               MutableByteSpan out) {
    Encoded encoded;
    if (!memory_->plan(raw)) {
        return encoded;
    }
    const auto found = memory_->search.find(raw, offset, memory_->sub_blocks, index);
    const auto note = [&](const SubBlock& block) {
        if (found.empty()) {
            memory_->search.note(raw, offset, block);
        }
    };
    encoded.size = memory_->encode_all(raw, found, out, note);
    memory_->search.remember(index);
    std::size_t end = encoded.size;
    for (const FoundReference& reference : found) {
        if (encoded.size > 0) {
            encoded.references.push_back({reference.offset, 2 * reference.count});
            std::memcpy(out.data() + end, reference.rounded, 2 * reference.count);
            end += 2 * reference.count;
        }
    }
    return encoded;
}

// False where there is nothing to be saved.
bool PlaneCoder::Memory::plan(ByteSpan raw) {
    plan_sub_blocks(raw, sub_blocks);
    return std::any_of(sub_blocks.begin(), sub_blocks.end(),
                       [](const SubBlock& block) { return block.kind != SubBlockKind::kRandom; });
}

std::size_t PlaneCoder::Memory::encode_reference(const FoundReference& found, ByteSpan raw, MutableByteSpan out) {
    const std::size_t count = found.count;
    std::array<std::byte*, kMaxElementWidth> plane{};
    for (unsigned k = 0; k < 4; ++k) {
        plane[k] = planes.data() + k * count;
    }
    plane_kernels().split(raw.data() + found.begin, count, 4, 0, plane);
    const auto exceptions = search.exceptions(found);
    store_u32(out.data(), header_word({.width = 4, .phase = 0, .rotation = 0}, 4 * count) | kReferenceBit);
    store_u64(out.data() + kSubBlockHeader, found.offset);
    store_u32(out.data() + kSubBlockHeader + 8, static_cast<std::uint32_t>(exceptions.size()));
    std::byte* const plane_headers = out.data() + kSubBlockHeader + kReferenceHeader;
    std::size_t written = kSubBlockHeader + kReferenceHeader + 2 * kPlaneHeader;
    for (unsigned k = 0; k < 2; ++k) {
        const CodedPlane coded = blocks.encode_plane({plane[k], count}, out.subspan(written));
        store_u32(plane_headers + k * kPlaneHeader, packed(static_cast<std::uint8_t>(coded.coding), coded.size));
        written += coded.size;
    }
    for (const RoundingException& exception : exceptions) {
        store_u32(out.data() + written, exception.index);
        std::memcpy(out.data() + written + sizeof(exception.index), &exception.upper_half,
                    sizeof(exception.upper_half));
        written += kExceptionSize;
    }
    return written;
}

std::size_t PlaneCoder::Memory::encode(const SubBlock& block, ByteSpan raw, MutableByteSpan out) {
    if (block.layout.width > 1) {
        return encode_elements(block, raw, out);
    }
    store_u32(out.data(), header_word(block.layout, raw.size()));
    const MutableByteSpan body = out.subspan(kSubBlockHeader + kPlaneHeader);
    CodedPlane coded;
    switch (block.kind) {
        case SubBlockKind::kRandom:
            coded = store_raw(raw, body);
            break;
        case SubBlockKind::kConstant:
            coded = store_repeated(raw, body);
            break;
        case SubBlockKind::kElements:
            coded = blocks.encode_opaque(raw, body);
            break;
    }
    store_u32(out.data() + kSubBlockHeader, packed(static_cast<std::uint8_t>(coded.coding), coded.size));
    return kSubBlockHeader + kPlaneHeader + coded.size;
}

std::size_t PlaneCoder::Memory::encode_elements(const SubBlock& block, ByteSpan raw, MutableByteSpan out) {
    PlaneLayout layout = block.layout;
    const auto [count, leading, trailing] = elements_of(raw.size(), layout);
    std::array<std::byte*, kMaxElementWidth> plane{};
    for (unsigned k = 0; k < layout.width; ++k) {
        plane[k] = planes.data() + k * count;
    }
    plane_kernels().split(raw.data() + layout.phase, count, layout.width, layout.rotation, plane);
    if (layout.rotation > 1 && count > 0 && varying_bits({plane[0], count}) == 0xff) {
        // An element that the sample did not have: the bits that went below the lowest are not the same in all, and
        // codes for them would take longer than they are worth.
        layout.rotation = 1;
        plane_kernels().split(raw.data() + layout.phase, count, layout.width, layout.rotation, plane);
    }
    store_u32(out.data(), header_word(layout, raw.size()));

    // Bits of a mantissa below those of the exponent in the highest byte.
    const unsigned mantissa_bits = layout.rotation > 0 ? layout.rotation - 1 : 0;
    std::byte* const plane_headers = out.data() + kSubBlockHeader;
    std::size_t written = kSubBlockHeader + layout.width * kPlaneHeader;
    written += store_raw(raw.first(leading), out.subspan(written)).size;
    written += store_raw(raw.last(trailing), out.subspan(written)).size;
    for (unsigned k = 0; k < layout.width; ++k) {
        const bool has_exponent = k + 1 == layout.width;
        const CodedPlane coded = has_exponent
                                     ? blocks.encode_exponents({plane[k], count}, mantissa_bits, out.subspan(written))
                                     : blocks.encode_plane({plane[k], count}, out.subspan(written));
        store_u32(plane_headers + k * kPlaneHeader, packed(static_cast<std::uint8_t>(coded.coding), coded.size));
        written += coded.size;
    }
    return written;
}

Status PlaneCoder::decode(ByteSpan stored, const Payload& referenced, MutableByteSpan raw) {
    Reader reader(stored);
    std::uint32_t magic = 0;
    std::uint32_t version_and_size = 0;
    if (!reader.take_word(magic) || !reader.take_word(version_and_size) || magic != kMagic) {
        return damaged("no plane frame");
    }
    if (packed_byte(version_and_size) != kVersion) {
        return damaged("written by a newer version");
    }
    if (packed_number(version_and_size) != raw.size() || raw.size() > kMaxPlaneFrameRaw) {
        return damaged("holds another number of bytes than expected");
    }
    std::uint64_t referenced_before = 0;
    while (!raw.empty()) {
        std::uint32_t word = 0;
        if (!reader.take_word(word)) {
            return damaged("ends too early");
        }
        const SubBlockHeader header = header_of(word);
        if (impossible(header) || header.size > raw.size()) {
            return damaged("an invalid sub-block");
        }
        const MutableByteSpan target = raw.first(header.size);
        Status decoded;
        if (header.reference) {
            const std::size_t size = 2 * elements_of(header.size, header.layout).count;
            decoded =
                memory_->decode_reference(reader, header.layout, referenced.subrange(referenced_before, size), target);
            referenced_before += size;
        } else {
            decoded = memory_->decode(reader, header.layout, target);
        }
        if (!decoded) {
            return decoded;
        }
        raw = raw.subspan(header.size);
    }
    return reader.empty() ? Status{} : Status{damaged("extra bytes after its end")};
}

Status PlaneCoder::Memory::decode_planes(Reader& reader, Elements elements, unsigned width, MutableByteSpan raw,
                                         std::array<const std::byte*, kMaxElementWidth>& plane) {
    const auto [count, leading, trailing] = elements;
    ByteSpan plane_headers;
    ByteSpan edges;
    if (!reader.take(width * kPlaneHeader, plane_headers) || !reader.take(leading + trailing, edges)) {
        return damaged("ends too early");
    }
    for (unsigned k = 0; k < width; ++k) {
        const std::uint32_t header = load_u32(plane_headers.data() + k * kPlaneHeader);
        ByteSpan body;
        if (!reader.take(packed_number(header), body)) {
            return damaged("ends too early");
        }
        // Opaque bytes go straight to where they belong.
        std::byte* const target = width == 1 ? raw.data() : planes.data() + k * count;
        plane[k] = blocks.decode(static_cast<Coding>(packed_byte(header)), body, {target, count});
        if (plane[k] == nullptr) {
            return damaged("a plane that does not decode");
        }
    }
    if (!edges.empty()) {
        std::memcpy(raw.data(), edges.data(), leading);
        std::memcpy(raw.data() + raw.size() - trailing, edges.data() + leading, trailing);
    }
    return {};
}

Status PlaneCoder::Memory::decode(Reader& reader, const PlaneLayout& layout, MutableByteSpan raw) {
    const Elements elements = elements_of(raw.size(), layout);
    std::array<const std::byte*, kMaxElementWidth> plane{};
    if (Status decoded = decode_planes(reader, elements, layout.width, raw, plane); !decoded) {
        return decoded;
    }
    if (layout.width > 1) {
        plane_kernels().merge(plane, elements.count, layout.width, layout.rotation, raw.data() + layout.phase);
    } else if (plane[0] != raw.data()) {
        std::memcpy(raw.data(), plane[0], elements.count);
    }
    return {};
}

Status PlaneCoder::Memory::decode_reference(Reader& reader, const PlaneLayout& layout, const Payload& bf16,
                                            MutableByteSpan raw) {
    const Elements elements = elements_of(raw.size(), layout);
    ByteSpan reference;
    if (elements.count == 0 || bf16.size() != 2 * elements.count || !reader.take(kReferenceHeader, reference)) {
        return damaged("refers to bytes that are not there");
    }
    std::array<const std::byte*, kMaxElementWidth> plane{};
    if (Status decoded = decode_planes(reader, elements, 2, raw, plane); !decoded) {
        return decoded;
    }
    const std::byte* rounded = bf16.slices()[0].bytes.data();
    if (bf16.slices().size() > 1) {
        const MutableByteSpan memory = MutableByteSpan(planes).subspan(2 * elements.count, 2 * elements.count);
        bf16.copy_to(0, memory);
        rounded = memory.data();
    }
    std::byte* const floats = raw.data() + layout.phase;
    restore_floats(plane[0], plane[1], rounded, elements.count, floats);
    std::uint64_t least = 0;
    for (std::uint32_t left = load_u32(reference.data() + 8); left > 0; --left) {
        ByteSpan exception;
        if (!reader.take(kExceptionSize, exception)) {
            return damaged("ends too early");
        }
        const std::uint32_t index = load_u32(exception.data());
        if (index < least || index >= elements.count) {
            return damaged("an invalid exception");
        }
        std::memcpy(floats + index * sizeof(std::uint32_t) + 2, exception.data() + 4, 2);
        least = std::uint64_t{index} + 1;
    }
    return {};
}

}  // namespace ckptfs
