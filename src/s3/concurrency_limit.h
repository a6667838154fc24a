// SPDX-License-Identifier: Apache-2.0
// How many requests may be under way: additive increase, multiplicative decrease.
//
// A value without I/O; the owner guards it. Time is passed in.
#pragma once

#include "ckptfs/clock.h"

namespace ckptfs::s3 {

class ConcurrencyLimit {
public:
    // Starts at max: the store says when that is too much. 1 <= min <= max.
    ConcurrencyLimit(int min, int max);

    // At least min, at most max.
    [[nodiscard]] int value() const { return static_cast<int>(exact_); }
    // True from the time the store asks to slow down until successes have raised the limit to max again.
    [[nodiscard]] bool is_lowered() const { return value() < max_; }

    // Grows by one for as many successes as the limit allows requests, so by one a round trip.
    void on_success();
    // 503 SlowDown: halves. Requests that were already under way when the limit was last halved tell nothing new and
    // change nothing, so that one refused burst halves once.
    void on_slow_down(SteadyTime request_sent, SteadyTime now);

private:
    int min_;
    int max_;
    double exact_;
    SteadyTime last_halved_ = SteadyTime::min();
};

}  // namespace ckptfs::s3
