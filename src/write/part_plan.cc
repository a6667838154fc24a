// SPDX-License-Identifier: Apache-2.0
#include "write/part_plan.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ckptfs/codec.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDefaultEqualPartSize = 32 * kMiB;
// The last parts of a file whose size is known hold at most one byte in this many of what is left.
constexpr std::uint64_t kLastParts = 16;
// If the store tolerates only one request, those without data take turns with parts: 0.7 s at 90 MB/s.
constexpr std::uint64_t kLargestInTurns = 64 * kMiB;
// Large enough that a request is not all latency, small enough that many copy at once.
constexpr std::uint64_t kCopyPieceSize = 256 * kMiB;
constexpr std::uint64_t kMaxCopyPieces = 2000;

std::uint64_t whole_frames_down(std::uint64_t size) {
    return size / kFrameSize * kFrameSize;
}

std::uint64_t whole_frames_up(std::uint64_t size) {
    return whole_frames_down(size + kFrameSize - 1);
}

}  // namespace

PartPlan::PartPlan(const WriteConfig& config, std::uint64_t write_budget)
    : write_budget_(write_budget),
      largest_(std::clamp(whole_frames_down(write_budget / 4), kMinPartSize, kMaxPartSize)) {
    if (config.part_size != 0 || config.equal_parts) {
        const std::uint64_t wanted = config.part_size != 0 ? config.part_size : kDefaultEqualPartSize;
        equal_size_ = std::clamp(whole_frames_down(wanted), kMinPartSize, largest_);
        is_lowered_ = whole_frames_down(config.part_size) > largest_;
        reachable_size_ = std::min(kMaxObjectSize, equal_size_ * kMaxPartNumber);
        return;
    }
    // The slowest growth that reaches the largest object; a budget that never does gets the slowest of all.
    for (const int steady : {1000, 500, 250, 125, 60, 30, 15, 8, 4, 2, 1, 1000}) {
        steady_parts_ = steady;
        std::uint64_t reach = 0;
        for (int number = 1; number <= kMaxPartNumber && reach < kMaxObjectSize; ++number) {
            reach += grown_size(number);
        }
        reachable_size_ = std::min(kMaxObjectSize, reach);
        if (reachable_size_ == kMaxObjectSize) {
            return;
        }
    }
}

std::string PartPlan::lowered() const {
    return is_lowered_
               ? format(
                     "--part-size is lowered to {}M, a quarter of the memory that writes may take, and files can "
                     "have {}G at most: use a larger --max-memory",
                     equal_size_ >> 20, reachable_size_ >> 30)
               : "";
}

std::uint64_t PartPlan::grown_size(int number) const {
    const std::uint64_t first = std::min(kFirstPartSize, largest_);
    const int growing = number - steady_parts_;
    if (growing <= 0) {
        return first;
    }
    const double grown = static_cast<double>(first) * std::exp(static_cast<double>(growing) / steady_parts_);
    if (grown >= static_cast<double>(largest_)) {
        return largest_;
    }
    return whole_frames_up(static_cast<std::uint64_t>(grown));
}

// Parts in flight, and the one that each file fills meanwhile, take half of the budget; the other half is for what is
// being encoded, and for parts that are kept for changes.
std::uint64_t PartPlan::slowed_size(Slowdown slowdown) const {
    if (slowdown.requests == 0) {
        return 0;
    }
    const std::uint64_t held = static_cast<std::uint64_t>(slowdown.requests) + slowdown.files;
    const std::uint64_t most = slowdown.requests == 1 ? std::min(kLargestInTurns, largest_) : largest_;
    return std::min(whole_frames_down(write_budget_ / 2 / held), most);
}

std::uint64_t PartPlan::part_size(int number, std::uint64_t offset, std::uint64_t known_size, Slowdown slowdown) const {
    if (equal_size_ != 0) {
        return equal_size_;
    }
    const std::uint64_t slowed = slowed_size(slowdown);
    const std::uint64_t grown = std::max(grown_size(number), slowed);
    if (known_size <= offset) {
        return grown;
    }
    const std::uint64_t left = known_size - offset;
    const auto parts_left = static_cast<std::uint64_t>(std::max(1, kMaxPartNumber - kSpareParts - number + 1));
    const std::uint64_t even = whole_frames_up((left + parts_left - 1) / parts_left);
    std::uint64_t size = std::max({std::min(kFirstPartSize, largest_), std::min(even, largest_), slowed});
    if (number > 1) {
        const std::uint64_t last_parts =
            slowdown.requests > 0 ? std::min(kLastParts, static_cast<std::uint64_t>(slowdown.requests)) : kLastParts;
        size = std::min(size, std::max(kMinPartSize, whole_frames_up(left / last_parts)));
    }
    return size;
}

std::uint64_t PartPlan::reachable_size(std::uint64_t known_size) const {
    if (equal_size_ != 0) {
        return reachable_size_;
    }
    const std::uint64_t told = std::min(kMaxObjectSize, largest_ * (kMaxPartNumber - kSpareParts));
    return known_size > reachable_size_ ? std::max(reachable_size_, told) : reachable_size_;
}

bool leaves_a_part(std::uint64_t end, std::uint64_t next_copy) {
    return next_copy <= end || next_copy - end >= kMinPartSize;
}

std::uint64_t size_before_copy(std::uint64_t planned, std::uint64_t begin, std::uint64_t next_copy) {
    const std::uint64_t left = next_copy > begin ? next_copy - begin : 0;
    if (left <= planned || left - planned >= kMinPartSize) {
        return planned;
    }
    return left < 2 * kMinPartSize ? left : whole_frames_down(left / 2);
}

CopyPlan plan_copy(std::uint64_t keep, const PartPlan& plan) {
    CopyPlan copy;
    if (plan.equal_size() != 0) {
        const std::uint64_t size = plan.equal_size();
        for (; keep - copy.fetch_from >= size; copy.fetch_from += size) {
            copy.pieces.push_back({copy.fetch_from, size});
        }
        return copy;
    }
    return plan_whole_copy(keep);
}

CopyPlan plan_whole_copy(std::uint64_t keep) {
    return plan_run_copy(0, keep, keep);
}

CopyPlan plan_run_copy(std::uint64_t offset, std::uint64_t size, std::uint64_t object_size) {
    CopyPlan copy;
    if (size < kMinPartSize) {
        return copy;
    }
    const std::uint64_t piece = std::max(kCopyPieceSize, (object_size + kMaxCopyPieces - 1) / kMaxCopyPieces);
    const std::uint64_t count = (size + piece - 1) / piece;
    // Cut evenly, so that no piece is too small to be a part.
    for (std::uint64_t index = 0; index < count; ++index) {
        const std::uint64_t begin = whole_frames_down(size / count * index);
        const std::uint64_t end = index + 1 == count ? size : whole_frames_down(size / count * (index + 1));
        copy.pieces.push_back({offset + begin, end - begin});
    }
    copy.fetch_from = offset + size;
    return copy;
}

}  // namespace ckptfs
