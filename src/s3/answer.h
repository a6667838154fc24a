// SPDX-License-Identifier: Apache-2.0
// Judges the reply to an attempt: a response to go on with, or an Error that names the request and what to do. Pure,
// except for what it notes in the Call and in the store's habits.
#pragma once

#include <string>
#include <string_view>

#include "ckptfs/http.h"
#include "ckptfs/status.h"
#include "s3/attempt.h"
#include "s3/call.h"
#include "s3/store_habits.h"

namespace ckptfs::s3 {

[[nodiscard]] Result<HttpResponse> judged(Call& call, const std::string& bucket, StoreHabits& habits,
                                          Result<HttpResponse> answer);
// True if the outcome shows that there is a store, even if it refuses the request.
[[nodiscard]] bool shows_a_store(const Result<HttpResponse>& outcome);
// The Error of a request that had no response, or was not sent.
[[nodiscard]] Error transport_error(Call& call, const std::string& bucket, Error error);

// The result refers to `call` and `outcome`, and must not outlive them.
[[nodiscard]] Attempt attempt_of(const Call& call, int number, const Result<HttpResponse>& outcome,
                                 Microseconds duration);
// S3's code, else the HTTP status, else errno's name.
[[nodiscard]] std::string error_name(const Error& error);

}  // namespace ckptfs::s3
