// SPDX-License-Identifier: Apache-2.0
// What follows a failed attempt: see s3/request_sender.h.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/answer.h"
#include "s3/error_table.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {
namespace {

// Short disturbances are over by then.
constexpr Milliseconds kTellAfter{1'000};
constexpr Milliseconds kTellEvery{30'000};

// A correction of the clock that differs by more is another one. The store tells the second.
constexpr std::chrono::minutes kSkew{1};
// How often a request is refused for its time although the correction stays the same.
constexpr int kMostClockRefusals = 5;

// The smallest body whose bytes take time to leave: less is in the kernel's buffers at once.
constexpr std::size_t kSmallestPart = std::size_t{1} << 20;

// An outage is at least this long without a reply that shows a store; from a shorter one, backoff alone recovers as
// fast.
constexpr Milliseconds kOutage{5'000};
// After an outage, the waiting requests are sent spread over this time, or at their own time if that is sooner: all
// nodes of a job see the store return at the same moment.
constexpr Milliseconds kComeBackWithin{3'000};

}  // namespace

// Nothing shows when a body's bytes leave. But no attempt stalls for longer than its timeout, so that one that took
// much longer was moving until that long before its end. The first failure needs no such correction: it begins the
// time. If the store has replied, it may have worked all the while on a body that was there at once; only for a part is
// that ruled out.
void RequestSender::leave_out_time_that_moved(const Call& call, const Error& error) const {
    const S3Request& request = call.request;
    const bool may_have_worked =
        error.http_status != 0 && (request.method != "PUT" || request.body.size() < kSmallestPart);
    if (!call.retry->failing_since || request.body.empty() || may_have_worked) {
        return;
    }
    const Milliseconds idle = std::max(error.without_result, call.attempt_timeout);
    const auto took = clock_.now() - call.sent_at;
    if (took > 2 * idle) {
        *call.retry->failing_since += took - idle;
    }
}

void RequestSender::recover(const SharedCall& call, Error error) {
    switch (recovery_of(error)) {
        case Recovery::kNone:
            finish(call, failure(std::move(error)));
            return;
        case Recovery::kRefreshCredentials:
            refresh_credentials(call, std::move(error));
            return;
        case Recovery::kCorrectClock:
            correct_clock(call, std::move(error));
            return;
        case Recovery::kRetryOnce:
            if (std::exchange(call->damaged_before, true)) {
                error.retryable = false;
                finish(call, failure(std::move(error)));
                return;
            }
            retry_later(call, std::move(error));
            return;
        case Recovery::kRetry:
        case Recovery::kSlowDown:
            retry_later(call, std::move(error));
            return;
    }
}

void RequestSender::refresh_credentials(const SharedCall& call, Error error) {
    if (!call->credentials) {
        error.retryable = false;
        finish(call, failure(std::move(error)));
        return;
    }
    credentials_.refuse(call->credentials);
    const bool again = std::exchange(call->refused_credentials, call->credentials) != nullptr;
    call->credentials_error = error;
    if (!again) {
        call->expects_other_credentials = true;
        retry_now(call);
        return;
    }
    // Other credentials may come late: from a person or a program that is behind. The store may also have erred.
    // Neither the store nor the source is asked all the time.
    error.retryable = true;
    retry_later(call, std::move(error));
}

void RequestSender::correct_clock(const SharedCall& call, Error error) {
    if (!call->server_time) {
        error.retryable = false;
        finish(call, failure(std::move(error)));
        return;
    }
    const WallTime::duration differs_by = *call->server_time - store_clock_.now();
    const ClockCorrection::Corrected corrected = store_clock_.take(*call->server_time);
    if (corrected.is_first) {
        log_warning(
            format("this machine's clock differs from the store's by {} s; requests are signed with the "
                   "store's time: synchronise it",
                   corrected.by.count()));
    }
    if (call->clock_refusals++ == 0) {
        retry_now(call);
        return;
    }
    // One of the store's servers, which has the wrong time, has taken the correction back. A proxy that tells a time of
    // its own may stand before all of them: then no correction helps.
    const bool was_taken_back = differs_by > kSkew || differs_by < -kSkew;
    error.retryable = was_taken_back || call->clock_refusals <= kMostClockRefusals;
    if (error.retryable) {
        retry_later(call, std::move(error));
    } else {
        finish(call, failure(std::move(error)));
    }
}

void RequestSender::retry_now(const SharedCall& call) {
    {
        const MutexLock lock(mutex_);
        ++statistics_.retries;
    }
    send_once_more(call);
}

void RequestSender::send_once_more(const SharedCall& call) {
    if (!call->before_retry) {
        enqueue(call);
        return;
    }
    // A copy, because the call is given another one while it runs.
    const auto before_retry = call->before_retry;
    before_retry(call);
    leave();
}

void RequestSender::retry_later(const SharedCall& call, Error error) {
    RetryState& retry = *call->retry;
    const SteadyTime now = clock_.now();
    ++retry.failed_attempts;
    retry.has_failed = true;
    if (!retry.failing_since) {
        // There was no progress for as long as the timeout.
        const bool timed_out = error.errno_value == ETIMEDOUT;
        retry.failing_since = timed_out ? now - std::max(error.without_result, call->attempt_timeout) : now;
    }
    const auto failing_for = std::chrono::duration_cast<Milliseconds>(now - *retry.failing_since);
    std::optional<Milliseconds> delay;
    bool dropped = false;
    bool tell = false;
    {
        const MutexLock lock(mutex_);
        delay = delay_before_retry(policy_, error, retry.failed_attempts, failing_for, random_(), call->retry_after);
        dropped = stopping_;
        failing_since_ = failing_since_.value_or(now);
        if (delay && !dropped) {
            ++statistics_.retries;
            tell = is_worth_a_line(failing_for, now);
            const WaitNumber wait = ++last_wait_;
            delayed_.emplace(wait, Delayed{call, now + *delay, recovery_of(error) == Recovery::kSlowDown});
            arm(wait, *delay);
        }
    }
    if (tell) {
        log_warning(format("{}; retrying for up to {} s", escaped(error.message), policy_.retry_for.count() / 1000));
    }
    if (dropped) {
        finish(call, failure(canceled(*call)));
        return;
    }
    if (!delay) {
        retry.given_up = true;
        // An error that new credentials would have resolved keeps its errno.
        error.errno_value = recovery_of(error) == Recovery::kRefreshCredentials ? error.errno_value : EIO;
        error.message += format("; given up after {:.1f} s without progress and {} attempts",
                                static_cast<double>(failing_for.count()) / 1000.0, retry.failed_attempts);
        finish(call, failure(std::move(error)));
    }
}

void RequestSender::arm(WaitNumber wait, Milliseconds delay) {
    timer_.after(delay, [weak = weak_from_this(), wait] {
        if (const auto self = weak.lock()) {
            self->wake_delayed(wait);
        }
    });
}

void RequestSender::end_outage(SteadyTime now) {
    const std::optional<SteadyTime> failing_since = std::exchange(failing_since_, std::nullopt);
    if (!failing_since || now - *failing_since < kOutage) {
        return;
    }
    for (auto& [wait, delayed] : delayed_) {
        const auto soon = std::chrono::duration_cast<Milliseconds>(kComeBackWithin * random_());
        if (!delayed.told_to_slow_down && delayed.until > now + soon) {
            delayed.until = now + soon;
            arm(wait, soon);
        }
    }
}

bool RequestSender::is_worth_a_line(Milliseconds failing_for, SteadyTime now) {
    const bool worth_it = failing_for >= kTellAfter && (!told_at_ || now - *told_at_ >= kTellEvery);
    told_at_ = worth_it ? now : told_at_;
    outage_was_told_ = outage_was_told_ || worth_it;
    return worth_it;
}

void RequestSender::wake_delayed(WaitNumber wait) {
    SharedCall woken;
    {
        const MutexLock lock(mutex_);
        const auto found = delayed_.find(wait);
        if (found == delayed_.end()) {
            return;
        }
        woken = std::move(found->second.call);
        delayed_.erase(found);
    }
    send_once_more(woken);
}

}  // namespace ckptfs::s3
