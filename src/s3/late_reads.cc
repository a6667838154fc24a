// SPDX-License-Identifier: Apache-2.0
#include "s3/late_reads.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace ckptfs::s3 {
namespace {

// Fewer times say nothing about their spread.
constexpr std::uint64_t kFewest = 16;
// Where reads share a link, the slowest of a round take a small multiple of the usual time; one that hangs takes a
// hundred times as long. Beyond twice the time of 95 % waiting is the worse choice.
constexpr double kSlow = 0.95;
constexpr double kUsual = 0.5;
constexpr int kTimesSlow = 2;
constexpr int kTimesUsual = 4;
constexpr int kSmallBits = 16;

}  // namespace

LateReads::Kind LateReads::kind_of(std::string operation, std::uint64_t bytes) {
    return {std::move(operation), static_cast<int>(std::bit_width(bytes >> kSmallBits))};
}

void LateReads::Times::add(Milliseconds took) {
    last_[added_ % kKept] = static_cast<std::int32_t>(std::min<std::int64_t>(took.count(), INT32_MAX));
    ++added_;
}

bool LateReads::Times::tells() const {
    return added_ >= kFewest;
}

Milliseconds LateReads::Times::quantile(double of) const {
    std::vector<std::int32_t> sorted(last_.begin(),
                                     last_.begin() + static_cast<int>(std::min<std::uint64_t>(added_, kKept)));
    const auto at = sorted.begin() + static_cast<int>(of * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), at, sorted.end());
    return Milliseconds(*at);
}

void LateReads::answered(const Kind& kind, Milliseconds took) {
    times_[kind].add(took);
    allowance_ = std::min<double>(allowance_ + kShare, kAtOnce);
}

const LateReads::Times* LateReads::times_of(const Kind& kind) const {
    for (auto at = times_.lower_bound(kind); at != times_.end() && at->first.operation == kind.operation; ++at) {
        if (at->second.tells()) {
            return &at->second;
        }
    }
    return nullptr;
}

bool LateReads::is_late(const Kind& kind, Milliseconds since) const {
    if (since < kLeastPatience) {
        return false;
    }
    const Times* times = times_of(kind);
    return times != nullptr &&
           since >= std::max(times->quantile(kSlow) * kTimesSlow, times->quantile(kUsual) * kTimesUsual);
}

}  // namespace ckptfs::s3
