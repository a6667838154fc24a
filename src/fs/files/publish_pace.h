// SPDX-License-Identifier: Apache-2.0
// When a log that grows is published next, counted in --publish-interval. Pure.
//
// Every interval, as long as that costs little. Below 5 MiB all of it is sent again (S3 copies no smaller part), so the
// more there is, the less often it is published: kCheap bytes of it an interval, but after kLongest in any case. A log
// that has doubled is due at once. So at most twice its size is sent, plus 2 kCheap an interval.
//
// After a failed publish the time to the next doubles, up to kLongest.
//
// Values, not synchronised.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ckptfs/clock.h"

namespace ckptfs::fs {

class PublishPace {
public:
    static constexpr std::uint64_t kCheap = std::uint64_t{64} << 10;
    // The longest pause, for a reader that follows the log on another mount.
    static constexpr Milliseconds kLongest{30'000};

    // `interval`: more than 0.
    explicit PublishPace(Milliseconds interval) : most_intervals_(std::max<std::int64_t>(1, kLongest / interval)) {}

    // An interval has passed. `unpublished`: bytes that are new; `sent_again`: published bytes that must be sent again
    // with them.
    void passed(std::uint64_t unpublished, std::uint64_t sent_again) {
        ++intervals_;
        const std::int64_t for_size = static_cast<std::int64_t>((sent_again + kCheap - 1) / kCheap);
        const std::int64_t for_failures = std::int64_t{1} << failures_;
        const bool has_doubled = failures_ == 0 && unpublished >= sent_again;
        is_due_ = has_doubled || intervals_ >= std::min(most_intervals_, std::max(for_size, for_failures));
    }
    [[nodiscard]] bool is_due() const { return is_due_; }
    // A publish begins; the log may be due again before it has ended.
    void begins() {
        intervals_ = 0;
        is_due_ = false;
    }
    void ended(bool published) { failures_ = published ? 0 : std::min(failures_ + 1, kMostFailures); }

private:
    static constexpr int kMostFailures = 20;

    std::int64_t most_intervals_;
    std::int64_t intervals_ = 0;
    bool is_due_ = false;
    int failures_ = 0;
};

}  // namespace ckptfs::fs
