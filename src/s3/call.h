// SPDX-License-Identifier: Apache-2.0
// One S3 operation on its way through the request sender: what to send, what to do with the answer, and how far its
// retries have come.
//
// A call belongs to one step at a time (caller, queue, transport, timer) and is handed from one to the next, so its
// fields need no lock.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "aws/credentials.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "s3/late_reads.h"
#include "s3/requests.h"

namespace ckptfs::s3 {

// Shared by the calls of one operation (a commit and the look at its key), which fail together after retry_for.
struct RetryState {
    int failed_attempts = 0;
    // At any time.
    bool has_failed = false;
    // When the present time without progress began.
    std::optional<SteadyTime> failing_since;
    // An attempt may have taken effect although a later one failed.
    bool outcome_unknown = false;
    // retry_for has passed: nothing more is tried.
    bool given_up = false;

    void progressed() {
        failed_attempts = 0;
        failing_since.reset();
    }
};

// Complete and copies may work for minutes. Amazon S3 sends blanks meanwhile, others send nothing.
inline constexpr int kSlowAnswerFactor = 3;

struct Call {
    S3Request request;
    std::shared_ptr<RetryState> retry = std::make_shared<RetryState>();
    int precondition_errno = ESTALE;
    // Goes in the lane of requests that carry almost no data.
    bool is_light = false;
    // For answers that may take long to begin (Complete, copies).
    int stall_timeout_factor = 1;
    // Ends with the error as soon as an attempt may have taken effect unseen; the caller looks, and may resume().
    bool stops_when_outcome_unknown = false;

    // Asked before each attempt, where the time for the request may pass while it waits; after a no the call fails.
    std::function<bool()> may_send;
    // Runs in the place of each further attempt, when its wait is over, where the request is right only for what its
    // caller has seen of the store: looks anew, then sends the call again, or ends it. Must not wait.
    std::function<void(const std::shared_ptr<Call>&)> before_retry;

    // Runs on the executor, once, before the first attempt: checksums of the body.
    std::function<void(S3Request&)> prepare;
    // Asked before each attempt.
    std::function<HttpHeaders()> attempt_headers;
    // What it is compared with, where it may be ended and sent again when it is late: reads only.
    std::optional<LateReads::Kind> kind;
    // As in HttpRequest.
    std::function<bool(const HttpResponse&)> on_head;
    std::function<bool(ByteSpan)> on_body;
    // Why on_head or on_body ended an attempt; without it the caller has canceled.
    std::optional<Error> refusal;
    // Reads a 2xx response; its Error is retried like any other.
    std::function<Status(const HttpResponse&)> accept;
    std::function<void(Result<HttpResponse>)> done;

    // Kept by the sender.
    std::string payload_hash;
    SharedCredentials credentials;
    SharedCredentials refused_credentials;
    std::optional<Error> credentials_error;
    // What is sent next is what the source has now: nothing is gained by sending the same again at once.
    bool expects_other_credentials = false;
    std::optional<WallTime> server_time;
    // How long the store asked to wait before a retry.
    Milliseconds retry_after{0};
    bool clock_corrected = false;
    bool damaged_before = false;
    SteadyTime queued_at{};
    SteadyTime sent_at{};
    Milliseconds attempt_timeout{0};
    int attempt = 0;
    int answered_attempt = 0;
    // The last that was ended because it was late.
    int late_attempt = 0;
    int times_late = 0;
};

using SharedCall = std::shared_ptr<Call>;

// An operation that is one request: sent, its answer read into a value, done.
// `read`: Result<Value>(const HttpResponse&). The call may be given hooks before it is sent.
template <class Value, class Read>
SharedCall make_simple_call(S3Request request, Read read, StoreDone<Value> done) {
    auto call = std::make_shared<Call>();
    auto value = std::make_shared<std::optional<Value>>();
    call->request = std::move(request);
    call->accept = [value, read = std::move(read)](const HttpResponse& response) -> Status {
        Result<Value> result = read(response);
        if (!result) {
            return failure(std::move(result.error()));
        }
        *value = std::move(*result);
        return {};
    };
    call->done = [value, done = std::move(done)](Result<HttpResponse> outcome) {
        if (!outcome) {
            done(failure(std::move(outcome.error())));
            return;
        }
        done(std::move(**value));
    };
    return call;
}

}  // namespace ckptfs::s3
