// SPDX-License-Identifier: Apache-2.0
#include "s3/request_sender.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "aws/sigv4.h"
#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/answer.h"
#include "s3/error_table.h"
#include "s3/signed_request.h"

namespace ckptfs::s3 {
namespace {

// Limit for a whole reply. Amazon S3 works on a Complete or a copy for minutes.
constexpr std::chrono::minutes kLongestAnswer{15};

}  // namespace

RequestSender::RequestSender(const StoreConfig& config, Endpoint endpoint, S3Dependencies dependencies)
    : transport_(dependencies.transport),
      timer_(dependencies.timer),
      clock_(dependencies.clock),
      executor_(dependencies.executor),
      credentials_(dependencies.credentials),
      random_(std::move(dependencies.random)),
      observers_(std::move(dependencies.observers)),
      bucket_(config.bucket),
      endpoint_(std::move(endpoint)),
      unsigned_payload_(config.unsigned_payload || endpoint_.uses_tls()),
      anonymous_(config.no_sign_request),
      stall_timeout_(config.stall_timeout),
      policy_{.retry_for = config.retry_for},
      store_clock_(clock_),
      queue_(config.connections(), config.light_connections()) {}

void RequestSender::send(const SharedCall& call) {
    if (!enter()) {
        std::exchange(call->done, nullptr)(failure(canceled(*call)));
        return;
    }
    call->is_light = call->is_light || is_light(call->request);
    if (!needs_executor(*call)) {
        enqueue(call);
        return;
    }
    auto task = [self = shared_from_this(), call] {
        self->compute(*call);
        self->enqueue(call);
    };
    if (call->is_light) {
        executor_.post_urgent(std::move(task));
    } else {
        executor_.post(std::move(task));
    }
}

void RequestSender::resume(const SharedCall& call, Error error) {
    if (!enter()) {
        std::exchange(call->done, nullptr)(failure(canceled(*call)));
        return;
    }
    recover(call, std::move(error));
}

bool RequestSender::enter() {
    const MutexLock lock(mutex_);
    if (stopping_) {
        return false;
    }
    ++outstanding_;
    return true;
}

void RequestSender::leave() {
    const MutexLock lock(mutex_);
    --outstanding_;
    if (outstanding_ == 0) {
        idle_.notify_all();
    }
}

void RequestSender::stop() {
    std::vector<SharedCall> dropped;
    std::vector<HttpTransport::Id> under_way;
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        dropped = queue_.drain();
        for (auto& [wait, delayed] : delayed_) {
            dropped.push_back(std::move(delayed.call));
        }
        delayed_.clear();
        for (const auto& [raw, id] : active_) {
            under_way.push_back(id);
        }
    }
    for (const HttpTransport::Id id : under_way) {
        transport_.cancel(id);
    }
    for (const SharedCall& call : dropped) {
        finish(call, failure(canceled(*call)));
    }
    MutexLock lock(mutex_);
    idle_.wait(lock, [this]() REQUIRES(mutex_) { return outstanding_ == 0; });
}

S3Statistics RequestSender::statistics() const {
    const MutexLock lock(mutex_);
    S3Statistics now = statistics_;
    now.in_flight = static_cast<std::uint64_t>(queue_.under_way());
    now.waiting = queue_.waiting() + delayed_.size();
    now.concurrency_limit = queue_.most();
    return now;
}

bool RequestSender::needs_executor(const Call& call) const {
    const bool hashes_payload = !anonymous_ && !unsigned_payload_ && !call.request.body.empty();
    return call.prepare != nullptr || hashes_payload;
}

void RequestSender::compute(Call& call) const {
    if (call.prepare) {
        std::exchange(call.prepare, nullptr)(call.request);
    }
    if (!anonymous_ && !unsigned_payload_ && !call.request.body.empty()) {
        call.payload_hash = hex(sha256(call.request.body));
    }
}

void RequestSender::enqueue(const SharedCall& call) {
    bool accepted = false;
    {
        const MutexLock lock(mutex_);
        accepted = !stopping_;
        if (accepted) {
            call->queued_at = clock_.now();
            queue_.push(call);
        }
    }
    if (!accepted) {
        finish(call, failure(canceled(*call)));
        return;
    }
    pump();
}

// One thread at a time starts requests; others that free a slot meanwhile leave it to that one, which looks again
// before it goes. So the depth of the stack does not grow with the queue.
void RequestSender::pump() {
    bool first = true;
    while (true) {
        SharedCall call;
        {
            const MutexLock lock(mutex_);
            if (first && pumping_) {
                return;
            }
            first = false;
            call = queue_.next();
            pumping_ = call != nullptr;
            if (!pumping_) {
                return;
            }
            ++statistics_.requests;
            // stop() waits for this thread, too: that of the timer or of the executor may still be in the transport,
            // which is destroyed next, when the call has ended.
            ++outstanding_;
        }
        begin(call);
        leave();
    }
}

void RequestSender::begin(const SharedCall& call) {
    if (call->retry->failing_since) {
        *call->retry->failing_since += clock_.now() - call->queued_at;
    }
    ++call->attempt;
    call->server_time.reset();
    call->retry_after = Milliseconds(0);
    credentials_.get([self = shared_from_this(), call](Result<SharedCredentials> credentials) {
        self->send_attempt(call, std::move(credentials));
    });
}

void RequestSender::send_attempt(const SharedCall& call, Result<SharedCredentials> credentials) {
    const int attempt = call->attempt;
    const bool refused_before =
        credentials && *credentials && call->refused_credentials && **credentials == *call->refused_credentials;
    const bool expects_others = std::exchange(call->expects_other_credentials, false);
    if (refused_before && (expects_others || !credentials_.has_accepted())) {
        Error error = *call->credentials_error;
        // If none have ever been accepted, these are wrong; else they have expired, and others are on their way.
        error.retryable = credentials_.has_accepted();
        credentials = failure(std::move(error));
    }
    if (!credentials) {
        settle(call, attempt, failure(transport_error(*call, bucket_, std::move(credentials.error()))));
        return;
    }
    if (call->may_send && !call->may_send()) {
        settle(call, attempt, failure(no_longer_wanted(*call)));
        return;
    }
    call->credentials = std::move(*credentials);
    call->sent_at = clock_.now();
    call->attempt_timeout = attempt_timeout(
        policy_, stall_timeout_ * call->stall_timeout_factor,
        std::chrono::duration_cast<Milliseconds>(call->sent_at - call->retry->failing_since.value_or(call->sent_at)));
    const HttpTransport::Id id =
        transport_.send(attempt_request(call), [self = shared_from_this(), call, attempt](Result<HttpResponse> answer) {
            self->on_answer(call, attempt, std::move(answer));
        });
    bool cancel = false;
    {
        const MutexLock lock(mutex_);
        if (call->answered_attempt < attempt) {
            active_[call.get()] = id;
            if (call->kind) {
                watch_reads();
            }
            cancel = stopping_;
        }
    }
    if (cancel) {
        transport_.cancel(id);
    }
}

Milliseconds RequestSender::longest_answer() const {
    return std::max<Milliseconds>(policy_.retry_for, kLongestAnswer);
}

HttpRequest RequestSender::attempt_request(const SharedCall& call) {
    std::string_view payload_hash = kEmptyPayloadHash;
    if (!call->request.body.empty()) {
        payload_hash = unsigned_payload_ ? kUnsignedPayload : std::string_view(call->payload_hash);
    }
    HttpRequest http = signed_request(call->request, call->attempt_headers ? call->attempt_headers() : HttpHeaders{},
                                      endpoint_, call->credentials, store_clock_.now(), payload_hash);
    http.stall_timeout = call->attempt_timeout;
    // Other changes of the same key wait for the reply, too. The limit does not apply to a body that is passed to
    // on_body, whose length is known.
    http.answer_timeout = longest_answer();
    http.connect_timeout = std::min(http.connect_timeout, call->attempt_timeout);
    // A read continues where it ended; an upload begins again, which is worth it once.
    http.ends_when_crawling = call->on_body || call->attempt == 1;
    http.is_light = call->is_light;
    http.is_sent_once = is_sent_once(call->request);
    http.max_collected_body = largest_answer(call->request);
    http.on_head = call->on_head;
    http.on_body = call->on_body;
    return http;
}

void RequestSender::on_answer(const SharedCall& call, int attempt, Result<HttpResponse> answer) {
    Result<HttpResponse> outcome = judged(*call, bucket_, habits_, std::move(answer));
    if (!outcome) {
        leave_out_time_that_moved(*call, outcome.error());
    }
    if (!observers_.empty()) {
        const auto duration = std::chrono::duration_cast<Microseconds>(clock_.now() - call->sent_at);
        Attempt ended = attempt_of(*call, attempt, outcome, duration);
        const std::string error = outcome ? "" : error_name(outcome.error());
        ended.error = error;
        ended.outcome_unknown = !outcome && outcome.error().outcome_unknown;
        for (AttemptObserver* observer : observers_) {
            observer->ended(ended);
        }
    }
    settle(call, attempt, std::move(outcome));
}

void RequestSender::settle(const SharedCall& call, int attempt, Result<HttpResponse> outcome) {
    bool outage_is_over = false;
    bool accepted_others = false;
    {
        const MutexLock lock(mutex_);
        call->answered_attempt = attempt;
        note_read(*call, outcome);
        // A request that never failed does not end the outage: others may fail all the while.
        outage_is_over = outcome && call->retry->has_failed && outage_was_told_ && delayed_.empty();
        outage_was_told_ = outage_was_told_ && !outage_is_over;
        if (shows_a_store(outcome)) {
            end_outage(clock_.now());
        }
        accepted_others = outcome && call->credentials && call->credentials != accepted_credentials_;
        if (accepted_others) {
            accepted_credentials_ = call->credentials;
        }
    }
    if (accepted_others) {
        credentials_.accept(call->credentials);
    }
    release_slot(call, outcome);
    pump();
    if (outcome) {
        if (outage_is_over) {
            log_info("the store answers again: no request waits to be retried");
        }
        finish(call, std::move(outcome));
        return;
    }
    Error& error = outcome.error();
    if (was_late(*call, error)) {
        retry_now(call);
        return;
    }
    call->retry->outcome_unknown = call->retry->outcome_unknown || error.outcome_unknown;
    if (call->stops_when_outcome_unknown && error.outcome_unknown) {
        finish(call, std::move(outcome));
        return;
    }
    recover(call, std::move(error));
}

void RequestSender::release_slot(const SharedCall& call, const Result<HttpResponse>& outcome) {
    const MutexLock lock(mutex_);
    active_.erase(call.get());
    queue_.ended(*call);
    ConcurrencyLimit& limit = queue_.limit();
    if (outcome) {
        limit.on_success();
        slowed_to_ = limit.is_lowered() ? limit.value() : 0;
        return;
    }
    statistics_.last_error = outcome.error().message;
    if (recovery_of(outcome.error()) == Recovery::kSlowDown) {
        ++statistics_.slow_downs;
        limit.on_slow_down(call->sent_at, clock_.now());
        slowed_to_ = limit.is_lowered() ? limit.value() : 0;
    }
}

void RequestSender::finish(const SharedCall& call, Result<HttpResponse> outcome) {
    if (!outcome) {
        outcome.error().outcome_unknown = outcome.error().outcome_unknown || call->retry->outcome_unknown;
    }
    std::exchange(call->done, nullptr)(std::move(outcome));
    leave();
}

Error RequestSender::canceled(const Call& call) const {
    Error error;
    error.errno_value = ECANCELED;
    error.outcome_unknown = call.retry->outcome_unknown;
    error.message = request_name(call.request.operation, bucket_, call.request.key) + ": canceled";
    return error;
}

Error RequestSender::no_longer_wanted(const Call& call) const {
    Error error;
    error.message = request_name(call.request.operation, bucket_, call.request.key) +
                    ": not sent, because another mount may have taken over what it was for";
    return error;
}

}  // namespace ckptfs::s3
