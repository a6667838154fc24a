// SPDX-License-Identifier: Apache-2.0
#include "base/retry.h"

#include <algorithm>

namespace ckptfs {

Milliseconds backoff(const RetryPolicy& policy, int attempt, double random) {
    Milliseconds longest = std::min(policy.first_delay, policy.max_delay);
    for (int doubling = 1; doubling < attempt && longest < policy.max_delay; ++doubling) {
        longest = std::min(longest * 2, policy.max_delay);
    }
    const double chosen = random * static_cast<double>(longest.count());
    return Milliseconds(static_cast<Milliseconds::rep>(chosen));
}

std::optional<Milliseconds> delay_before_retry(const RetryPolicy& policy, const Error& error, int attempt,
                                               Milliseconds since_progress, double random, Milliseconds asked_for) {
    if (!error.retryable || since_progress >= policy.retry_for) {
        return std::nullopt;
    }
    return std::min(std::min(asked_for, policy.retry_for) + backoff(policy, attempt, random),
                    policy.retry_for - since_progress);
}

Milliseconds attempt_timeout(const RetryPolicy& policy, Milliseconds stall_timeout, Milliseconds since_progress) {
    const Milliseconds timeout = std::min(stall_timeout, policy.retry_for);
    return std::clamp(policy.retry_for - since_progress, std::max(Milliseconds(1), timeout / 4), timeout);
}

}  // namespace ckptfs
