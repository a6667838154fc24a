// SPDX-License-Identifier: Apache-2.0
// One S3 operation on its way through the request sender: what to send, what to do with the reply, and how far its
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

// Shared by the calls of one operation (a commit and the HEAD of its key), which fail together after retry_for.
struct RetryState {
    int failed_attempts = 0;
    // Set by the first failure; progress does not reset it.
    bool has_failed = false;
    // When the current period without progress began.
    std::optional<SteadyTime> failing_since;
    // An attempt may have taken effect although a later one failed.
    bool outcome_unknown = false;
    // retry_for has passed: no further attempt is made.
    bool given_up = false;

    void progressed() {
        failed_attempts = 0;
        failing_since.reset();
    }
};

// Factor for the stall timeout of CompleteMultipartUpload and copies, which may take minutes. Amazon S3 sends blanks
// meanwhile, other stores send nothing.
inline constexpr int kSlowAnswerFactor = 3;

struct Call {
    S3Request request;
    std::shared_ptr<RetryState> retry = std::make_shared<RetryState>();
    int precondition_errno = ESTALE;
    // Queued in the lane of requests that carry almost no data.
    bool is_light = false;
    // More than 1 for replies that may take long to begin (Complete, copies).
    int stall_timeout_factor = 1;
    // The call ends with the error as soon as an attempt may have taken effect unseen; the caller checks the key, and
    // may resume().
    bool stops_when_outcome_unknown = false;

    // Asked before each attempt, if the request may become unwanted while it waits; once it returns false, the call
    // fails.
    std::function<bool()> may_send;
    // Runs in place of each further attempt, after its wait, if the request is right only for what its caller has seen
    // of the store: it looks again, then sends the call again or ends it. Must not wait.
    std::function<void(const std::shared_ptr<Call>&)> before_retry;

    // Runs on the executor, once, before the first attempt: checksums of the body.
    std::function<void(S3Request&)> prepare;
    // Asked before each attempt.
    std::function<HttpHeaders()> attempt_headers;
    // The reads that this one is compared with; if it is late, it is ended and sent again. Only for reads.
    std::optional<LateReads::Kind> kind;
    // As in HttpRequest.
    std::function<bool(const HttpResponse&)> on_head;
    std::function<bool(ByteSpan)> on_body;
    // Why on_head or on_body ended an attempt; if empty, the caller has canceled.
    std::optional<Error> refusal;
    // Reads a 2xx response; its Error is retried like any other.
    std::function<Status(const HttpResponse&)> accept;
    std::function<void(Result<HttpResponse>)> done;

    // The fields from here on belong to the RequestSender.
    std::string payload_hash;
    SharedCredentials credentials;
    SharedCredentials refused_credentials;
    std::optional<Error> credentials_error;
    // The next attempt is made at once, for newer credentials: if the source still has the refused ones, it is not
    // sent.
    bool expects_other_credentials = false;
    std::optional<WallTime> server_time;
    // How long the store asked to wait before a retry.
    Milliseconds retry_after{0};
    // How often the store has refused the request for its time.
    int clock_refusals = 0;
    bool damaged_before = false;
    SteadyTime queued_at{};
    SteadyTime sent_at{};
    Milliseconds attempt_timeout{0};
    int attempt = 0;
    int answered_attempt = 0;
    // The last attempt that was ended because it was late.
    int late_attempt = 0;
    int times_late = 0;
};

using SharedCall = std::shared_ptr<Call>;

// An operation that is one request: sent, its reply read into a value, done.
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
