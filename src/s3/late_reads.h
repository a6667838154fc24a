// SPDX-License-Identifier: Apache-2.0
// Decides which reads are late: those that take far longer than others of their size took. Sent again on another
// connection, such a read most likely gets its reply sooner: of a hundred replies of a large store, one hangs or comes
// from a front end that is overloaded.
//
// The usual time is learned from earlier reads, for each size separately. When the store or the link becomes slow for
// all, all reads are late and none would gain; so an allowance limits how many are sent again: a few at once, then a
// share of the replies.
//
// A value without I/O; the owner guards it. Time is passed in.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "ckptfs/clock.h"

namespace ckptfs::s3 {

class LateReads {
public:
    // Besides the first kAtOnce, at most this share of the reads is sent again.
    static constexpr double kShare = 0.02;
    static constexpr int kAtOnce = 8;
    // No read is late before this: less is a round trip and its jitter, and a retry costs a new connection.
    static constexpr Milliseconds kLeastPatience{250};

    // What a read is compared with: others of its operation, and of its size to a factor of two. Size 0: replies that
    // are small, or of unknown size.
    struct Kind {
        std::string operation;
        int size = 0;

        friend bool operator<(const Kind& a, const Kind& b) {
            return std::tie(a.operation, a.size) < std::tie(b.operation, b.size);
        }
    };
    [[nodiscard]] static Kind kind_of(std::string operation, std::uint64_t bytes);

    void answered(const Kind& kind, Milliseconds took);
    // Whether a read that has been under way for `since` is late.
    [[nodiscard]] bool is_late(const Kind& kind, Milliseconds since) const;
    [[nodiscard]] bool has_allowance() const { return allowance_ >= 1; }
    // Takes one read from the allowance.
    void ask_again() { allowance_ -= 1; }

private:
    class Times {
    public:
        void add(Milliseconds took);
        [[nodiscard]] bool tells() const;
        [[nodiscard]] Milliseconds quantile(double of) const;

    private:
        static constexpr std::size_t kKept = 128;
        std::array<std::int32_t, kKept> last_{};
        std::uint64_t added_ = 0;
    };
    // The times of this kind, or else those of larger reads, which take longer; null if too few are known.
    [[nodiscard]] const Times* times_of(const Kind& kind) const;

    std::map<Kind, Times> times_;
    double allowance_ = kAtOnce;
};

}  // namespace ckptfs::s3
