// SPDX-License-Identifier: Apache-2.0
// What an S3 error means: errno, whether and how to try again, and advice. Pure.
//
// Sources: "Error responses" of the Amazon S3 API Reference; for other stores' codes, their documentation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ckptfs/status.h"

namespace ckptfs::s3 {

enum class Recovery : std::uint8_t {
    kNone,
    kRetry,
    // Retry, and send fewer requests at a time.
    kSlowDown,
    // Look for newer credentials; final if there are none.
    kRefreshCredentials,
    // Take the time from the response's Date header; at once, and from the second time on as kRetry.
    kCorrectClock,
    // The bytes were damaged in transit, or are damaged here: retried once, then final.
    kRetryOnce,
};

// The <Error> element of a response body. All empty if there was none (HEAD).
struct S3ErrorBody {
    std::string code;
    std::string message;
    std::string request_id;
    std::string region;
};

struct FailedRequest {
    // "UploadPart".
    std::string_view operation;
    std::string_view bucket;
    std::string_view key;
    int status = 0;
    S3ErrorBody body;
    // x-amz-bucket-region.
    std::string region;
    std::string request_id;
    // The reply came from a server that expects TLS.
    bool wants_tls = false;
    // The answer came from a proxy in front of the store, which may come to reach it.
    bool by_proxy = false;
    // What 412 means to the caller: ESTALE for If-Match, EEXIST for If-None-Match.
    int precondition_errno = ESTALE;
};

// True if the body is what a web server replies to plain HTTP at its port for TLS.
[[nodiscard]] bool asks_for_tls(std::string_view body);
[[nodiscard]] Error store_error(const FailedRequest& failed);
// The Error for a 412, but without its status: a HEAD took the place of a condition.
[[nodiscard]] Error condition_failed(std::string_view operation, std::string_view bucket, std::string_view key,
                                     int precondition_errno);
// From the error's S3 code, HTTP status, and retryable flag.
[[nodiscard]] Recovery recovery_of(const Error& error);
// "UploadPart s3://bucket/key", escaped: how every message begins.
[[nodiscard]] std::string request_name(std::string_view operation, std::string_view bucket, std::string_view key);

}  // namespace ckptfs::s3
