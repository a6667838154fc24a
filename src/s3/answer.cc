// SPDX-License-Identifier: Apache-2.0
#include "s3/answer.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "aws/times.h"
#include "base/text.h"
#include "s3/error_table.h"
#include "s3/responses.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

// As StoreHabits knows it: what says that a key is not there has a request ID.
constexpr const char* kNumbersAbsences = "request IDs with 404";

bool is_success(int status) {
    return status >= 200 && status < 300;
}

// Responses that can carry an <Error> after a good status begin with an XML declaration, blanks or the element.
std::optional<S3ErrorBody> error_inside(const HttpResponse& response) {
    return response.body.find("<Error") == std::string::npos ? std::nullopt : parse_error_body(response.body);
}

// False for a page of a proxy, which has a Date, too.
bool is_of_a_store(const FailedRequest& failed) {
    return !failed.body.code.empty() || !failed.request_id.empty();
}

// "404 page not found" of a proxy that has lost its routes, which names no code, and a HEAD could not tell by that: it
// must not make a file look as if it were not there. Stores that number no such answers cannot be told from proxies.
bool is_absence_by_a_proxy(const FailedRequest& failed, StoreHabits& habits) {
    if (failed.status == 404 && !failed.request_id.empty()) {
        habits.note(kNumbersAbsences);
    }
    return failed.status == 404 && !is_of_a_store(failed) && habits.has(kNumbersAbsences);
}

Error error_answer(Call& call, const std::string& bucket, StoreHabits& habits, const HttpResponse& response,
                   S3ErrorBody body) {
    FailedRequest failed;
    failed.operation = call.request.operation;
    failed.bucket = bucket;
    failed.key = call.request.key;
    failed.status = response.status;
    failed.wants_tls = response.status == 400 && body.code.empty() && asks_for_tls(response.body);
    failed.body = std::move(body);
    failed.region = response.header("x-amz-bucket-region");
    failed.request_id = response.header("x-amz-request-id");
    failed.precondition_errno = call.precondition_errno;
    if (is_of_a_store(failed)) {
        call.server_time = parse_http_date(response.header("date"));
    }
    call.retry_after = retry_after(response);
    failed.by_proxy = is_absence_by_a_proxy(failed, habits);
    return store_error(failed);
}

Result<HttpResponse> judged_by_what_it_says(Call& call, const std::string& bucket, StoreHabits& habits,
                                            Result<HttpResponse> answer) {
    if (!answer) {
        return failure(transport_error(call, bucket, std::move(answer.error())));
    }
    if (!is_success(answer->status)) {
        S3ErrorBody body = parse_error_body(answer->body).value_or(S3ErrorBody{});
        return failure(error_answer(call, bucket, habits, *answer, std::move(body)));
    }
    if (auto body = error_inside(*answer)) {
        return failure(error_answer(call, bucket, habits, *answer, std::move(*body)));
    }
    if (call.accept) {
        if (Status accepted = call.accept(*answer); !accepted) {
            Error error = std::move(accepted.error());
            error.http_status = answer->status;
            error.request_id = answer->header("x-amz-request-id");
            error.message =
                request_name(call.request.operation, bucket, call.request.key) + ": " + std::move(error.message);
            return failure(std::move(error));
        }
    }
    return answer;
}

}  // namespace

Result<HttpResponse> judged(Call& call, const std::string& bucket, StoreHabits& habits, Result<HttpResponse> answer) {
    Result<HttpResponse> outcome = judged_by_what_it_says(call, bucket, habits, std::move(answer));
    if (!outcome && (call.request.method == "GET" || call.request.method == "HEAD")) {
        // A read has no effect: the HEAD of a key leaves no doubt about the commit whose RetryState it shares.
        outcome.error().outcome_unknown = false;
    }
    return outcome;
}

bool shows_a_store(const Result<HttpResponse>& outcome) {
    return outcome || (outcome.error().http_status >= 400 && outcome.error().http_status < 500 &&
                       recovery_of(outcome.error()) == Recovery::kNone);
}

Error transport_error(Call& call, const std::string& bucket, Error error) {
    if (call.refusal) {
        error = *std::exchange(call.refusal, std::nullopt);
    }
    // Errors of the store already name the request, such as those for refused credentials.
    if (error.http_status == 0) {
        error.message =
            request_name(call.request.operation, bucket, call.request.key) + ": " + std::move(error.message);
    }
    return error;
}

Attempt attempt_of(const Call& call, int number, const Result<HttpResponse>& outcome, Microseconds duration) {
    Attempt attempt;
    attempt.operation = call.request.operation;
    attempt.key = call.request.key;
    attempt.number = number;
    attempt.bytes_sent = call.request.body.size();
    attempt.duration = duration;
    if (!outcome) {
        attempt.status = outcome.error().http_status;
        attempt.request_id = outcome.error().request_id;
        attempt.server_time = call.server_time;
        return attempt;
    }
    attempt.status = outcome->status;
    attempt.request_id = outcome->header("x-amz-request-id");
    attempt.server_time = parse_http_date(outcome->header("date"));
    // A body that was streamed to the caller is not in the response.
    const std::string length(outcome->header("content-length"));
    attempt.bytes_received = call.on_body ? std::strtoull(length.c_str(), nullptr, 10) : outcome->body.size();
    return attempt;
}

std::string error_name(const Error& error) {
    if (!error.s3_code.empty()) {
        return error.s3_code;
    }
    if (error.http_status != 0) {
        return std::to_string(error.http_status);
    }
    const char* name = strerrorname_np(error.errno_value);
    return name == nullptr ? std::to_string(error.errno_value) : name;
}

}  // namespace ckptfs::s3
