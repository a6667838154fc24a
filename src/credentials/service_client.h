// SPDX-License-Identifier: Apache-2.0
// Asks a service and waits for its answer, on a thread that is made for waiting.
//
// Ownership: the transport outlives the client. Threads: stateless; the HTTP threads are never waited for by
// themselves.
#pragma once

#include <stop_token>

#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

class ServiceClient {
public:
    explicit ServiceClient(HttpTransport& transport) : transport_(transport) {}

    // The answer, whatever its status; that of the last attempt, where 429 or 5xx, or nothing at all, was answered to
    // those before. Fails as HttpTransport does, with ETIMEDOUT after 30 s an attempt, and with ECANCELED soon after a
    // stop is requested.
    [[nodiscard]] Result<HttpResponse> ask(const HttpRequest& request, int attempts, const std::stop_token& stop) const;

private:
    [[nodiscard]] Result<HttpResponse> ask_once(HttpRequest request, const std::stop_token& stop) const;

    HttpTransport& transport_;
};

// Sleeps; false where a stop was requested meanwhile.
[[nodiscard]] bool pause_for(std::chrono::milliseconds time, const std::stop_token& stop);

// Whether the same request may succeed later.
[[nodiscard]] bool is_passing(int http_status);

}  // namespace ckptfs
