// SPDX-License-Identifier: Apache-2.0
// Which reads are late: those that take far longer than others of their size took. The same read, asked on another
// connection, is then answered sooner, most likely: one of a hundred answers of a large store hangs or comes from a
// front end that is overloaded.
//
// How long is usual is learned from the reads before, for each size by itself. When the store or the link becomes slow
// for all, all reads are late and none would gain; so few of them are asked again: an allowance, some at once, then a
// share of what is answered.
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
    // At most this share of the reads is asked again, besides the first few.
    static constexpr double kShare = 0.02;
    static constexpr int kAtOnce = 8;
    // Less is a round trip and its jitter, and costs a new connection.
    static constexpr Milliseconds kLeastPatience{250};

    // What a read is compared with: others of its operation, and of its size to a factor of two. 0: answers that are
    // small, or of unknown size.
    struct Kind {
        std::string operation;
        int size = 0;

        friend bool operator<(const Kind& a, const Kind& b) {
            return std::tie(a.operation, a.size) < std::tie(b.operation, b.size);
        }
    };
    [[nodiscard]] static Kind kind_of(std::string operation, std::uint64_t bytes);

    void answered(const Kind& kind, Milliseconds took);
    // One that has been under way so long.
    [[nodiscard]] bool is_late(const Kind& kind, Milliseconds since) const;
    [[nodiscard]] bool has_allowance() const { return allowance_ >= 1; }
    // Takes one from it.
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
    // Of the kind, or else of larger reads, which take longer.
    [[nodiscard]] const Times* times_of(const Kind& kind) const;

    std::map<Kind, Times> times_;
    double allowance_ = kAtOnce;
};

}  // namespace ckptfs::s3
