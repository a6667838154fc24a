// SPDX-License-Identifier: Apache-2.0
#include "codec/plane_frame.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "codec/plane_bits.h"
#include "codec/plane_coding.h"
#include "codec/plane_frame_format.h"
#include "codec/plane_layout.h"
#include "codec/plane_split.h"

namespace ckptfs {
namespace {

using namespace plane_format;

// Headers of all sub-blocks that plan_sub_blocks() can make of one frame, and room that libzstd likes to have.
constexpr std::size_t kBoundOverRaw = 1024;

// Takes bytes from the front of a frame that may lie about what follows.
class Reader {
public:
    explicit Reader(ByteSpan bytes) : bytes_(bytes) {}

    [[nodiscard]] bool take(std::size_t size, ByteSpan& taken) {
        if (size > bytes_.size()) {
            return false;
        }
        taken = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return true;
    }
    [[nodiscard]] bool take_word(std::uint32_t& word) {
        ByteSpan taken;
        if (!take(sizeof(word), taken)) {
            return false;
        }
        word = load_word(taken.data());
        return true;
    }
    [[nodiscard]] bool empty() const { return bytes_.empty(); }

private:
    ByteSpan bytes_;
};

Failure damaged(const char* what) {
    return failure(EIO, format("plane frame: {}", what));
}

struct Elements {
    std::size_t count = 0;
    // Bytes behind the last whole element.
    std::size_t trailing = 0;
};

Elements elements_of(std::size_t size, const PlaneLayout& layout) {
    return {(size - layout.phase) / layout.width, (size - layout.phase) % layout.width};
}

}  // namespace

struct PlaneCoder::Memory {
    PlaneBlockCoder blocks;
    std::vector<SubBlock> sub_blocks;
    std::vector<std::byte> planes = std::vector<std::byte>(kMaxPlaneFrameRaw);

    std::size_t encode(const SubBlock& block, ByteSpan raw, MutableByteSpan out, PlaneEffort effort);
    std::size_t encode_elements(const SubBlock& block, ByteSpan raw, MutableByteSpan out);
    Status decode(Reader& reader, const PlaneLayout& layout, MutableByteSpan raw);
};

PlaneCoder::PlaneCoder() : memory_(std::make_unique<Memory>()) {}
PlaneCoder::~PlaneCoder() = default;

std::size_t PlaneCoder::bound(std::size_t raw_size) {
    return raw_size + kBoundOverRaw;
}

std::size_t PlaneCoder::encode(ByteSpan raw, MutableByteSpan out, PlaneEffort effort) {
    plan_sub_blocks(raw, memory_->sub_blocks);
    bool hopeless = true;
    for (const SubBlock& block : memory_->sub_blocks) {
        hopeless = hopeless && block.kind == SubBlockKind::kRandom;
    }
    if (hopeless) {
        return 0;
    }
    store_word(out.data(), kMagic);
    store_word(out.data() + 4, packed(kVersion, raw.size()));
    std::size_t written = kFrameHeader;
    for (const SubBlock& block : memory_->sub_blocks) {
        written += memory_->encode(block, raw.subspan(block.offset, block.size), out.subspan(written), effort);
    }
    return written + raw.size() / 100 < raw.size() ? written : 0;
}

std::size_t PlaneCoder::Memory::encode(const SubBlock& block, ByteSpan raw, MutableByteSpan out, PlaneEffort effort) {
    if (block.layout.width > 1) {
        return encode_elements(block, raw, out);
    }
    store_word(out.data(), header_word(block.layout, raw.size()));
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
            coded = blocks.encode_opaque(raw, body, effort);
            break;
    }
    store_word(out.data() + kSubBlockHeader, packed(static_cast<std::uint8_t>(coded.coding), coded.size));
    return kSubBlockHeader + kPlaneHeader + coded.size;
}

std::size_t PlaneCoder::Memory::encode_elements(const SubBlock& block, ByteSpan raw, MutableByteSpan out) {
    PlaneLayout layout = block.layout;
    const auto [count, trailing] = elements_of(raw.size(), layout);
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
    store_word(out.data(), header_word(layout, raw.size()));

    // Below the exponent's bits in the highest byte.
    const unsigned mantissa_bits = layout.rotation > 0 ? layout.rotation - 1 : 0;
    std::byte* const plane_headers = out.data() + kSubBlockHeader;
    std::size_t written = kSubBlockHeader + layout.width * kPlaneHeader;
    written += store_raw(raw.first(layout.phase), out.subspan(written)).size;
    written += store_raw(raw.last(trailing), out.subspan(written)).size;
    for (unsigned k = 0; k < layout.width; ++k) {
        const bool has_exponent = k + 1 == layout.width;
        const CodedPlane coded = has_exponent
                                     ? blocks.encode_exponents({plane[k], count}, mantissa_bits, out.subspan(written))
                                     : blocks.encode_plane({plane[k], count}, out.subspan(written));
        store_word(plane_headers + k * kPlaneHeader, packed(static_cast<std::uint8_t>(coded.coding), coded.size));
        written += coded.size;
    }
    return written;
}

Status PlaneCoder::decode(ByteSpan stored, MutableByteSpan raw) {
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
    while (!raw.empty()) {
        std::uint32_t word = 0;
        if (!reader.take_word(word)) {
            return damaged("ends too early");
        }
        const auto [layout, size, reference, reserved] = header_of(word);
        if (reserved || size == 0 || size > raw.size() || layout.phase >= layout.width || layout.phase > size ||
            (layout.width == 1 && layout.rotation > 0)) {
            return damaged("a sub-block that cannot be");
        }
        if (reference) {
            return damaged("refers to other frames, which is not supported yet");
        }
        if (Status status = memory_->decode(reader, layout, raw.first(size)); !status) {
            return status;
        }
        raw = raw.subspan(size);
    }
    return reader.empty() ? Status{} : Status{damaged("bytes behind its end")};
}

Status PlaneCoder::Memory::decode(Reader& reader, const PlaneLayout& layout, MutableByteSpan raw) {
    const auto [count, trailing] = elements_of(raw.size(), layout);
    ByteSpan plane_headers;
    ByteSpan edges;
    if (!reader.take(layout.width * kPlaneHeader, plane_headers) || !reader.take(layout.phase + trailing, edges)) {
        return damaged("ends too early");
    }
    std::array<const std::byte*, kMaxElementWidth> plane{};
    for (unsigned k = 0; k < layout.width; ++k) {
        const std::uint32_t header = load_word(plane_headers.data() + k * kPlaneHeader);
        ByteSpan body;
        if (!reader.take(packed_number(header), body)) {
            return damaged("ends too early");
        }
        // Opaque bytes go straight to where they belong.
        std::byte* const target = layout.width == 1 ? raw.data() : planes.data() + k * count;
        plane[k] = blocks.decode(static_cast<Coding>(packed_byte(header)), body, {target, count});
        if (plane[k] == nullptr) {
            return damaged("a plane that does not decode");
        }
    }
    if (layout.width == 1) {
        if (plane[0] != raw.data()) {
            std::memcpy(raw.data(), plane[0], count);
        }
        return {};
    }
    std::memcpy(raw.data(), edges.data(), layout.phase);
    std::memcpy(raw.data() + raw.size() - trailing, edges.data() + layout.phase, trailing);
    plane_kernels().merge(plane, count, layout.width, layout.rotation, raw.data() + layout.phase);
    return {};
}

}  // namespace ckptfs
