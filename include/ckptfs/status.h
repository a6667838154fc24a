// SPDX-License-Identifier: Apache-2.0
// Errors as values.
//
// Every operation that can fail returns a Result. An Error is written once, where the failure is understood, and
// travels unchanged to the place that answers the kernel or the terminal: it carries the errno for the caller, the
// store's own code, whether another attempt can help, and one line for a person.
//
// Values; safe to copy between threads.
#pragma once

#include <cerrno>
#include <chrono>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ckptfs {

struct Error {
    int errno_value = EIO;
    // The S3 error code ("NoSuchKey"); empty if the store sent none.
    std::string s3_code;
    // 0 if no HTTP response arrived.
    int http_status = 0;
    // The same request, sent again, may succeed.
    bool retryable = false;
    // The request may have taken effect although no success was seen: a commit has to check the key before it reports
    // failure.
    bool outcome_unknown = false;
    // The bytes that came are not those that were written, perhaps only damaged in transit: a retry may help. Never set
    // for a request that was given up.
    bool damaged = false;
    // For how long a request that timed out had brought nothing; 0 if that is not known.
    std::chrono::milliseconds without_result{0};
    // One line: what failed, on which key, and what to do. Never holds a secret.
    std::string message;
    // x-amz-request-id of the response; empty if there was none.
    std::string request_id;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;
using Failure = tl::unexpected<Error>;

inline Failure failure(int errno_value, std::string message) {
    Error error;
    error.errno_value = errno_value;
    error.message = std::move(message);
    return Failure(std::move(error));
}

// EIO, marked as damage.
inline Failure damage(std::string message) {
    Error error;
    error.damaged = true;
    error.message = std::move(message);
    return Failure(std::move(error));
}

inline Failure failure(Error error) {
    return Failure(std::move(error));
}

// The functions below say what a store means by an error. Stores differ in code and status, and HEAD has no code: only
// this file deals with that.
//
// If-Match or If-None-Match did not hold, or a HEAD that took the place of the condition says so.
[[nodiscard]] inline bool is_condition_failed(const Error& error) {
    return error.http_status == 412 || error.s3_code == "PreconditionFailed";
}

// The store lacks the operation, or does not know a condition of it.
[[nodiscard]] inline bool is_not_implemented(const Error& error) {
    return error.http_status == 501 || error.s3_code == "NotImplemented";
}

// The upload was completed or aborted.
[[nodiscard]] inline bool is_upload_gone(const Error& error) {
    return error.s3_code == "NoSuchUpload";
}

// The object ends before the range begins.
[[nodiscard]] inline bool is_range_outside(const Error& error) {
    return error.http_status == 416 || error.s3_code == "InvalidRange";
}

// The permission is missing, or the store cannot do it: a retry gets the same reply. False for expired credentials,
// which are renewed.
[[nodiscard]] inline bool is_refused_for_good(const Error& error) {
    return !error.retryable && (error.errno_value == EACCES || error.errno_value == EOPNOTSUPP);
}
// The same, in the store's own words: a proxy that is told to refuse for a while names neither a code nor a request.
[[nodiscard]] inline bool is_refused_by_store(const Error& error) {
    return is_refused_for_good(error) &&
           (error.errno_value != EACCES || !error.s3_code.empty() || !error.request_id.empty());
}

}  // namespace ckptfs
