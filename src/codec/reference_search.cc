// SPDX-License-Identifier: Apache-2.0
#include "codec/reference_search.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/xxhash.h"
#include "codec/plane_frame_format.h"

namespace ckptfs {
namespace {

using Piece = ReferenceIndex::Piece;

constexpr std::size_t kFloat = sizeof(float);
constexpr std::size_t kBf16 = sizeof(std::uint16_t);
constexpr std::size_t kPieceElements = ReferenceIndex::kPieceElements;
constexpr std::size_t kPieceBytes = kPieceElements * kBf16;
constexpr std::size_t kWindowElements = ReferenceIndex::kWindowElements;
// Places of a span that are sampled first, if pieces are as small as can be.
constexpr std::size_t kSamples = 2;
// One piece in this many is looked up; those around it follow.
constexpr std::size_t kStride = 3;
// How many hashes of a frame may differ although the window was equal.
constexpr int kMaxFailures = 64;
// Elements of a reference per exception, at least: an exception takes six bytes, and an element saves two.
constexpr std::size_t kElementsPerException = 64;

bool looks_like_floats(const SubBlock& block) {
    return block.kind == SubBlockKind::kElements && block.layout.width == kFloat;
}

// The exponent of fp16 does not fill a byte when it is rotated.
bool looks_like_bf16(const SubBlock& block) {
    return block.kind == SubBlockKind::kElements && block.layout.width == kBf16 && block.layout.rotation > 0;
}

// Floats that lie on one grid, without gaps.
struct Span {
    std::size_t begin = 0;
    std::size_t count = 0;

    [[nodiscard]] std::size_t end() const { return begin + count * kFloat; }
};

template <class Visit>
void for_each_span(std::span<const SubBlock> blocks, Visit visit) {
    Span span;
    for (const SubBlock& block : blocks) {
        if (!looks_like_floats(block)) {
            continue;
        }
        const std::size_t begin = block.offset + block.layout.phase;
        const std::size_t end = block.offset + block.size;
        const std::size_t count = end < begin ? 0 : (end - begin) / kFloat;
        // An element that the cut between two sub-blocks goes through belongs to none of them.
        if (span.count > 0 && span.end() == begin && block.layout.phase == 0) {
            span.count += count;
            continue;
        }
        if (span.count > 0) {
            visit(span);
        }
        span = {begin, count};
    }
    if (span.count > 0) {
        visit(span);
    }
}

std::size_t bf16_elements(std::span<const SubBlock> blocks) {
    std::size_t elements = 0;
    for (const SubBlock& block : blocks) {
        elements += looks_like_bf16(block) ? block.size / kBf16 : 0;
    }
    return elements;
}

std::size_t elements_of(std::span<const FoundReference> found) {
    std::size_t elements = 0;
    for (const FoundReference& reference : found) {
        elements += reference.count;
    }
    return elements;
}

std::uint64_t window_at(const void* bf16) {
    std::uint64_t window = 0;
    static_assert(sizeof(window) == kWindowElements * kBf16);
    std::memcpy(&window, bf16, sizeof(window));
    return window;
}

std::uint64_t hash_of_piece(const void* bf16) {
    return xxh3_long({static_cast<const std::byte*>(bf16), kPieceBytes});
}

std::uint64_t hash_at(const std::uint16_t* bf16, unsigned level) {
    if (level == 0) {
        return hash_of_piece(bf16);
    }
    const std::size_t half = kPieceElements << (level - 1);
    return ReferenceIndex::joined(hash_at(bf16, level - 1), hash_at(bf16 + half, level - 1));
}

struct Match {
    // Index of an element in the span.
    std::size_t at = 0;
    std::uint64_t offset = 0;
};

}  // namespace

// One frame that is being searched.
class ReferenceSearch::Frame {
public:
    Frame(ReferenceSearch& search, ByteSpan raw, std::uint64_t offset, ReferenceIndex& index)
        : search_(search), raw_(raw), offset_(offset), lookup_(index), piece_(kPieceElements << lookup_.level()) {}

    // Whether a sample of the span has a match.
    [[nodiscard]] bool sample(const Span& span) {
        const std::size_t stretch = 2 * piece_ + kWindowElements;
        const std::size_t samples =
            std::max<std::size_t>(1, std::min(span.count / stretch, kSamples >> lookup_.level()));
        for (std::size_t i = 0; i < samples; ++i) {
            const std::size_t room = span.count - std::min(span.count, stretch);
            const std::size_t from = samples == 1 ? room / 2 : room * i / (samples - 1);
            const std::size_t count = std::min(stretch, span.count - from);
            std::uint16_t* const rounded = round(span, from, count);
            if (count >= piece_ && next_match(rounded, 0, count)) {
                return true;
            }
        }
        return false;
    }

    void search(const Span& span) {
        const std::uint16_t* const rounded = round(span, 0, span.count);
        std::size_t done = 0;
        for (std::size_t at = 0; at + piece_ <= span.count && search_.found_.size() < plane_format::kMaxReferences;) {
            std::optional<Match> match = next_match(rounded, at, std::min(at + 2 * piece_, span.count));
            if (!match) {
                at += kStride * piece_;
                continue;
            }
            std::size_t end = match->at + piece_;
            while (goes_on(rounded, end, span.count, match->offset + (end - match->at) * kBf16)) {
                end += piece_;
            }
            while (match->at >= done + piece_ && match->offset >= piece_ * kBf16 &&
                   goes_on(rounded, match->at - piece_, span.count, match->offset - piece_ * kBf16)) {
                match->at -= piece_;
                match->offset -= piece_ * kBf16;
            }
            take(span, rounded, *match, end - match->at);
            at = done = end;
        }
    }

private:
    std::uint16_t* round(const Span& span, std::size_t from, std::size_t count) {
        const std::size_t begin = span.begin + from * kFloat;
        // Spans do not overlap, and neither do their places here.
        std::uint16_t* const rounded = search_.rounded_.data() + begin / kFloat;
        round_to_bf16(raw_.data() + begin, count, rounded);
        return rounded;
    }

    // The first match that begins at `from` or later and ends by `count`.
    std::optional<Match> next_match(const std::uint16_t* rounded, std::size_t from, std::size_t count) {
        for (std::size_t at = from; at + piece_ <= count; ++at) {
            const std::uint64_t window = window_at(rounded + at);
            if (!lookup_.may_have(window)) {
                continue;
            }
            std::size_t probe = 0;
            while (const Piece* const piece = lookup_.find(window, probe)) {
                if (!may_refer_to(piece->offset)) {
                    continue;
                }
                if (hash_at(rounded + at, lookup_.level()) == piece->hash) {
                    note_reference(piece->offset);
                    return Match{at, piece->offset};
                }
                if (++failures_ > kMaxFailures) {
                    return std::nullopt;
                }
            }
        }
        return std::nullopt;
    }

    bool goes_on(const std::uint16_t* rounded, std::size_t at, std::size_t count, std::uint64_t offset) {
        if (at + piece_ > count || !may_refer_to(offset)) {
            return false;
        }
        const std::uint64_t window = window_at(rounded + at);
        std::size_t probe = 0;
        while (const Piece* const piece = lookup_.find(window, probe)) {
            if (piece->offset == offset && hash_at(rounded + at, lookup_.level()) == piece->hash) {
                note_reference(offset);
                return true;
            }
        }
        return false;
    }

    // The index may have bytes of later frames, too, which were encoded earlier.
    [[nodiscard]] bool may_refer_to(std::uint64_t offset) const {
        const std::uint64_t end = offset + piece_ * kBf16;
        std::ptrdiff_t more = 0;
        for (std::uint64_t frame = offset / kFrameSize; frame * kFrameSize < end; ++frame) {
            more += refers_to(frame) ? 0 : 1;
        }
        return end <= offset_ && frame_count_ + more <= static_cast<std::ptrdiff_t>(frames_.size());
    }

    void note_reference(std::uint64_t offset) {
        for (std::uint64_t frame = offset / kFrameSize; frame * kFrameSize < offset + piece_ * kBf16; ++frame) {
            if (!refers_to(frame)) {
                frames_[static_cast<std::size_t>(frame_count_++)] = frame;
            }
        }
    }

    [[nodiscard]] bool refers_to(std::uint64_t frame) const {
        const auto end = frames_.begin() + frame_count_;
        return std::find(frames_.begin(), end, frame) != end;
    }

    void take(const Span& span, const std::uint16_t* rounded, const Match& match, std::size_t count) {
        FoundReference found;
        found.begin = span.begin + match.at * kFloat;
        found.count = count;
        found.offset = match.offset;
        found.rounded = rounded + match.at;
        found.first_exception = search_.exceptions_.size();
        const std::size_t limit = std::min(found.first_exception + count / kElementsPerException, kMaxExceptions);
        if (!find_exceptions(raw_.data() + found.begin, found.rounded, count, limit, search_.exceptions_)) {
            search_.exceptions_.resize(found.first_exception);
            return;
        }
        found.exceptions = search_.exceptions_.size() - found.first_exception;
        search_.found_.push_back(found);
    }

    ReferenceSearch& search_;
    const ByteSpan raw_;
    const std::uint64_t offset_;
    const ReferenceIndex::Lookup lookup_;
    const std::size_t piece_;
    int failures_ = 0;
    std::array<std::uint64_t, plane_format::kMaxReferencedFrames> frames_{};
    std::ptrdiff_t frame_count_ = 0;
};

std::span<const FoundReference> ReferenceSearch::find(ByteSpan raw, std::uint64_t offset,
                                                      std::span<const SubBlock> blocks, ReferenceIndex& index) {
    found_.clear();
    exceptions_.clear();
    pieces_.clear();
    const bool has_floats = std::any_of(blocks.begin(), blocks.end(), looks_like_floats);
    if (index.empty() || !has_floats) {
        return found_;
    }
    rounded_.resize(kFrameSize / kFloat + kWindowElements);
    Frame frame(*this, raw, offset, index);
    bool promising = index.found_lately();
    if (!promising) {
        for_each_span(blocks, [&](const Span& span) { promising = promising || frame.sample(span); });
    }
    if (promising) {
        for_each_span(blocks, [&](const Span& span) { frame.search(span); });
        index.note_search(!found_.empty());
    }
    if (!found_.empty() && bf16_elements(blocks) > elements_of(found_)) {
        found_.clear();
    }
    return found_;
}

void ReferenceSearch::note(ByteSpan raw, std::uint64_t offset, const SubBlock& block) {
    if (!looks_like_bf16(block)) {
        return;
    }
    const std::size_t end = block.offset + block.size;
    for (std::size_t at = block.offset + block.layout.phase; at + kPieceBytes <= end; at += kPieceBytes) {
        const std::byte* const piece = raw.data() + at;
        pieces_.push_back({window_at(piece), hash_of_piece(piece), offset + at});
    }
}

void ReferenceSearch::remember(ReferenceIndex& index) {
    if (!pieces_.empty()) {
        index.add(pieces_);
    }
}

}  // namespace ckptfs
