// SPDX-License-Identifier: Apache-2.0
// When to try again, and when to give up. Pure: time and chance are passed in.
//
//   const auto delay = delay_before_retry(policy, error, attempt, since_progress, random);
//   if (!delay) { fail with the error } else { timer.after(*delay, send again) }
#pragma once

#include <chrono>
#include <optional>

#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct RetryPolicy {
    // The first wait is at most this long; each one after it at most twice the one before.
    Milliseconds first_delay{100};
    Milliseconds max_delay{std::chrono::seconds(20)};
    // Time without progress after which an error is final.
    Milliseconds retry_for{std::chrono::minutes(5)};
};

// Full jitter: evenly between nothing and min(max_delay, first_delay * 2^(attempt - 1)), so that many clients that
// failed together do not come back together (AWS Architecture Blog, "Exponential Backoff And Jitter").
// `attempt` counts from 1, the attempt that failed; `random` lies in [0, 1).
[[nodiscard]] Milliseconds backoff(const RetryPolicy& policy, int attempt, double random);

// How long to wait before the request is sent again; empty when the error is final: not retryable, or no byte has moved
// for policy.retry_for. `asked_for`: a wait that the server asked for (Retry-After), to which backoff is added, so that
// clients that were asked together do not come back together. The last wait is cut, so that one more attempt is made
// just before the end.
[[nodiscard]] std::optional<Milliseconds> delay_before_retry(const RetryPolicy& policy, const Error& error, int attempt,
                                                             Milliseconds since_progress, double random,
                                                             Milliseconds asked_for = Milliseconds(0));

// How long an attempt may stall: at most `stall_timeout`, and not beyond the end of policy.retry_for, but at least a
// quarter of the shorter of both.
[[nodiscard]] Milliseconds attempt_timeout(const RetryPolicy& policy, Milliseconds stall_timeout,
                                           Milliseconds since_progress);

}  // namespace ckptfs
