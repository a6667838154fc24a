// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_content.h"

#include <algorithm>
#include <iterator>

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

namespace {

// More runs would leave too few part numbers for what is written.
constexpr std::size_t kMaxRuns = 1000;

std::uint64_t frames_down(std::uint64_t size) {
    return size / kFrameSize * kFrameSize;
}

std::uint64_t frames_up(std::uint64_t size) {
    return frames_down(size + kFrameSize - 1);
}

bool keeps_size(const StagedContent& content) {
    return content.size() == content.base_size();
}

// The whole frames of the base in a piece of it.
FileRange whole_frames(const StagedContent& content, const ContentPiece& piece) {
    const std::uint64_t begin = frames_up(piece.begin);
    const bool ends_both = keeps_size(content) && piece.end == content.size();
    const std::uint64_t end = ends_both ? piece.end : frames_down(piece.end);
    return {begin, end > begin ? end - begin : 0};
}

std::uint64_t stored_size(const FileRange& range, const std::vector<FrameRecord>& frames) {
    if (frames.empty()) {
        return range.size;
    }
    std::uint64_t bytes = 0;
    for (std::uint64_t frame = range.offset / kFrameSize; frame < frames_up(range.end()) / kFrameSize; ++frame) {
        bytes += frames[frame].stored_size;
    }
    return bytes;
}

// By how much a part that holds these bytes is padded, if they take about as much as they took in the base.
std::uint64_t padding(const FileRange& range, const std::vector<FrameRecord>& frames) {
    const std::uint64_t stored = stored_size(range, frames);
    return stored < kMinPartSize ? kMinPartSize - stored : 0;
}

// What is left of the range without frames that need others to be decoded: those others may have changed.
std::vector<FileRange> self_contained(const FileRange& range, const std::vector<FrameRecord>& frames) {
    if (frames.empty()) {
        return {range};
    }
    std::vector<FileRange> ranges;
    std::uint64_t begin = range.offset;
    for (std::uint64_t at = range.offset; at < range.end(); at += kFrameSize) {
        if (frames[at / kFrameSize].may_refer) {
            ranges.push_back({begin, at - begin});
            begin = at + kFrameSize;
        }
    }
    if (begin < range.end()) {
        ranges.push_back({begin, range.end() - begin});
    }
    return ranges;
}

}  // namespace

std::uint64_t prefix_to_copy(const StagedContent& content) {
    const std::uint64_t unchanged = content.unchanged_prefix();
    const std::uint64_t prefix =
        unchanged == content.size() && keeps_size(content) ? unchanged : frames_down(unchanged);
    return prefix < kMinPartSize ? 0 : prefix;
}

std::vector<FileRange> runs_to_copy(const StagedContent& content, const std::vector<FrameRecord>& frames) {
    std::vector<FileRange> runs;
    if (!frames.empty() && frames.size() != frames_up(content.base_size()) / kFrameSize) {
        return runs;
    }
    const std::uint64_t prefix = prefix_to_copy(content);
    for (const ContentPiece& piece : content.pieces(prefix, content.size())) {
        if (piece.source != ByteSource::kBase) {
            continue;
        }
        for (FileRange run : self_contained(whole_frames(content, piece), frames)) {
            const std::uint64_t before = runs.empty() ? prefix : runs.back().end();
            const std::uint64_t begin = std::max(run.offset, before + kMinPartSize);
            if (begin >= run.end()) {
                continue;
            }
            run = {begin, run.end() - begin};
            if (stored_size(run, frames) >= kMinPartSize + padding({before, begin - before}, frames)) {
                runs.push_back(run);
            }
        }
    }
    if (runs.size() > kMaxRuns) {
        std::nth_element(runs.begin(), runs.begin() + kMaxRuns, runs.end(),
                         [](const FileRange& left, const FileRange& right) { return left.size > right.size; });
        runs.resize(kMaxRuns);
        std::sort(runs.begin(), runs.end(),
                  [](const FileRange& left, const FileRange& right) { return left.offset < right.offset; });
    }
    return runs;
}

}  // namespace ckptfs
