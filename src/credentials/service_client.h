// SPDX-License-Identifier: Apache-2.0
// Asks a service and waits for its reply, on a thread that is made for waiting.
//
// Ownership: the transport outlives the client. Threads: stateless; must not be used on an HTTP thread, which would
// wait for itself.
#pragma once

#include <stop_token>

#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

class ServiceClient {
public:
    explicit ServiceClient(HttpTransport& transport) : transport_(transport) {}

    // The reply, whatever its status. After 429, 5xx or a failure that is retryable it asks again, with `attempts` in
    // all, and returns the last result. Fails as HttpTransport does, with ETIMEDOUT after 30 s an attempt, and with
    // ECANCELED soon after a stop is requested.
    [[nodiscard]] Result<HttpResponse> ask(const HttpRequest& request, int attempts, const std::stop_token& stop) const;

private:
    [[nodiscard]] Result<HttpResponse> ask_once(HttpRequest request, const std::stop_token& stop) const;

    HttpTransport& transport_;
};

// Sleeps; false if a stop was requested meanwhile.
[[nodiscard]] bool pause_for(std::chrono::milliseconds time, const std::stop_token& stop);

// Whether the same request may succeed later.
[[nodiscard]] bool is_passing(int http_status);

}  // namespace ckptfs
