// SPDX-License-Identifier: Apache-2.0
#include "credentials/service_client.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "base/random_numbers.h"
#include "base/retry.h"
#include "base/text.h"

namespace ckptfs {
namespace {

// Bodies are a few kilobytes, and may trickle for as long as an attempt lasts.
constexpr std::size_t kLargestBody = std::size_t{1} << 20;
constexpr std::chrono::seconds kLongestAttempt{30};
// 0.2 s on average before the second attempt. All nodes of a job ask at once, and should not come back together.
constexpr RetryPolicy kPauses{.first_delay = std::chrono::milliseconds(400)};

bool is_worth_another(const Result<HttpResponse>& answer) {
    return answer ? is_passing(answer->status) : answer.error().retryable;
}

}  // namespace

Result<HttpResponse> ServiceClient::ask(const HttpRequest& request, int attempts, const std::stop_token& stop) const {
    const std::function<double()> random = random_numbers();
    for (int attempt = 1;; ++attempt) {
        Result<HttpResponse> answer = ask_once(request, stop);
        if (attempt >= attempts || !is_worth_another(answer)) {
            return answer;
        }
        if (!pause_for(backoff(kPauses, attempt, random()), stop)) {
            return failure(ECANCELED, "canceled");
        }
    }
}

Result<HttpResponse> ServiceClient::ask_once(HttpRequest request, const std::stop_token& stop) const {
    request.max_collected_body = kLargestBody;
    auto promise = std::make_shared<std::promise<Result<HttpResponse>>>();
    std::future<Result<HttpResponse>> answer = promise->get_future();
    const HttpTransport::Id id = transport_.send(
        std::move(request), [promise](Result<HttpResponse> response) { promise->set_value(std::move(response)); });
    const std::stop_callback cancel(stop, [this, id] { transport_.cancel(id); });
    if (answer.wait_for(kLongestAttempt) == std::future_status::ready) {
        return answer.get();
    }
    transport_.cancel(id);
    Result<HttpResponse> late = answer.get();
    if (!late && late.error().errno_value == ECANCELED && !stop.stop_requested()) {
        late.error().errno_value = ETIMEDOUT;
        late.error().retryable = true;
        late.error().message = format("no whole answer within {} s", kLongestAttempt.count());
    }
    return late;
}

bool pause_for(std::chrono::milliseconds time, const std::stop_token& stop) {
    // Not a Mutex: only the standard condition waits for a stop token, and this one guards nothing.
    std::mutex mutex;
    std::condition_variable_any requested;
    std::unique_lock lock(mutex);
    requested.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
}

bool is_passing(int http_status) {
    return http_status == 429 || http_status >= 500;
}

}  // namespace ckptfs
