// SPDX-License-Identifier: Apache-2.0
// Requests sent through a transport, and their outcomes.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "http/curl_transport.h"

namespace ckptfs {

using Outcome = Result<HttpResponse>;

constexpr std::chrono::seconds kDeadline{20};

inline std::unique_ptr<HttpTransport> make_transport(int threads = 1, int max_connections = 4) {
    CurlTransportOptions options;
    options.threads = threads;
    options.max_connections = max_connections;
    auto transport = make_curl_transport(options);
    EXPECT_TRUE(transport.has_value());
    return std::move(*transport);
}

inline HttpRequest get_request(std::string url) {
    HttpRequest request;
    request.method = "GET";
    request.url = std::move(url);
    return request;
}

struct Sent {
    HttpTransport::Id id;
    std::future<Outcome> outcome;
};

inline Sent send(HttpTransport& transport, HttpRequest request) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    std::future<Outcome> outcome = promise->get_future();
    const auto id =
        transport.send(std::move(request), [promise](Outcome result) { promise->set_value(std::move(result)); });
    return {id, std::move(outcome)};
}

inline Outcome wait(std::future<Outcome>& outcome) {
    if (outcome.wait_for(kDeadline) != std::future_status::ready) {
        return failure(EDEADLK, "the test waited too long");
    }
    return outcome.get();
}

inline Outcome exchange(HttpTransport& transport, HttpRequest request) {
    Sent sent = send(transport, std::move(request));
    return wait(sent.outcome);
}

}  // namespace ckptfs
