// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_content.h"

#include <algorithm>
#include <iterator>

#include "ckptfs/codec.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {

void StagedContent::write(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) {
        return;
    }
    size_ = std::max(size_, end);
    auto next = staged_.lower_bound(begin);
    if (next != staged_.begin() && std::prev(next)->second >= begin) {
        --next;
    }
    while (next != staged_.end() && next->first <= end) {
        begin = std::min(begin, next->first);
        end = std::max(end, next->second);
        next = staged_.erase(next);
    }
    staged_.emplace(begin, end);
}

void StagedContent::truncate(std::uint64_t size) {
    size_ = size;
    kept_ = std::min(kept_, size);
    staged_.erase(staged_.lower_bound(size), staged_.end());
    if (!staged_.empty()) {
        std::uint64_t& end = std::prev(staged_.end())->second;
        end = std::min(end, size);
    }
}

std::uint64_t StagedContent::staged_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [begin, end] : staged_) {
        bytes += end - begin;
    }
    return bytes;
}

std::vector<ContentPiece> StagedContent::pieces(std::uint64_t begin, std::uint64_t end) const {
    std::vector<ContentPiece> pieces;
    end = std::min(end, size_);
    auto next = staged_.upper_bound(begin);
    if (next != staged_.begin() && std::prev(next)->second > begin) {
        --next;
    }
    while (begin < end) {
        ContentPiece piece{begin, end, ByteSource::kZeros};
        if (next != staged_.end() && next->first <= begin) {
            piece.source = ByteSource::kStaged;
            piece.end = std::min(end, next->second);
            ++next;
        } else {
            if (next != staged_.end()) {
                piece.end = std::min(end, next->first);
            }
            if (begin < kept_) {
                piece.source = ByteSource::kBase;
                piece.end = std::min(piece.end, kept_);
            }
        }
        begin = piece.end;
        pieces.push_back(piece);
    }
    return pieces;
}

std::uint64_t StagedContent::unchanged_prefix() const {
    return staged_.empty() ? kept_ : std::min(kept_, staged_.begin()->first);
}

std::optional<ByteRun> StagedContent::run_behind_base() const {
    if (staged_.size() != 1) {
        return std::nullopt;
    }
    const auto& [begin, end] = *staged_.begin();
    if (begin > kept_ || end < kept_) {
        return std::nullopt;
    }
    return ByteRun{begin, end};
}

std::uint64_t prefix_to_copy(const StagedContent& content) {
    const std::uint64_t unchanged = content.unchanged_prefix();
    const std::uint64_t prefix = unchanged == content.size() && unchanged == content.base_size()
                                     ? unchanged
                                     : unchanged / kFrameSize * kFrameSize;
    return prefix < kMinPartSize ? 0 : prefix;
}

}  // namespace ckptfs
