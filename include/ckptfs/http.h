// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests, many at a time.
//
// The transport moves bytes and posts completions; it knows nothing of S3, never hashes, and repeats no request, except
// one that a reused connection left without a reply (HttpRequest::is_sent_once). One request is one attempt.
//
// Ownership: the transport keeps the request (and so its body's slices) until `done` has been called. `done` is called
// exactly once for every send(), also after cancel() and while the transport is destroyed.
// Threads: send() and cancel() may be called from any thread. `on_head`, `on_body` and `done` run on an HTTP thread,
// without locks held; they must be short and must not block.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/status.h"

namespace ckptfs {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse;

struct HttpRequest {
    std::string method;
    std::string url;
    HttpHeaders headers;
    Payload body;
    // Sees status and headers of a 2xx response before the first byte reaches on_body, so that bytes of another range
    // or version are never handed on; returning false ends the request with ECANCELED.
    std::function<bool(const HttpResponse&)> on_head;
    // Receives the body of a 2xx response as it arrives; returning false ends the request with ECANCELED. Without it,
    // and for every other status, the body is collected in HttpResponse::body.
    std::function<bool(ByteSpan)> on_body;
    // How many bytes of a 2xx body are collected at most; a larger one is an error (EMSGSIZE). Of other bodies the
    // first 64 KiB are collected.
    std::size_t max_collected_body = std::size_t{1} << 20;
    // Time without one byte moved in either direction, from the moment the request leaves the transport's queue.
    // Not a limit on the whole request.
    std::chrono::milliseconds stall_timeout{20'000};
    // Time for the whole reply, from the moment the request has been sent, because a store can send blanks for ever.
    // Does not apply once on_body receives a body. 0: no limit.
    std::chrono::milliseconds answer_timeout{0};
    std::chrono::milliseconds connect_timeout{5'000};
    // If the body moves far more slowly than those of other requests, the request ends with ECONNABORTED, so that the
    // caller can ask for the rest, or begin again, on another connection.
    bool ends_when_crawling = false;
    // The request has an effect that must not be repeated unseen: if a reused connection closes without a reply, the
    // result is an error with outcome_unknown (ECONNRESET). Always so for a POST.
    bool is_sent_once = false;
    // The request carries almost no data and a program waits for it: it uses reserved connections and their own thread.
    bool is_light = false;
    // Never sent through a proxy, whatever the environment says; for addresses of this machine or its link.
    bool bypasses_proxy = false;
};

struct HttpResponse {
    int status = 0;
    // Names in lower case.
    HttpHeaders headers;
    std::string body;

    // The value of the header; empty if absent.
    [[nodiscard]] std::string_view header(std::string_view lower_case_name) const {
        for (const auto& [name, value] : headers) {
            if (name == lower_case_name) {
                return value;
            }
        }
        return {};
    }
};

struct HttpStatistics {
    std::uint64_t requests = 0;
    std::uint64_t connections_opened = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t in_flight = 0;
};

class HttpTransport {
public:
    using Id = std::uint64_t;
    using Done = std::function<void(Result<HttpResponse>)>;

    virtual ~HttpTransport() = default;
    // The Result holds an Error only if no complete response arrived: ETIMEDOUT (stall, or a reply without end),
    // EMSGSIZE (a body too large to be collected), ENOBUFS (all collected bodies together are too large), ECONNREFUSED,
    // EHOSTUNREACH (name or route), ECONNRESET (reset, truncated body), ECONNABORTED (it crawled), EPROTO (TLS: message
    // says which check failed), ECANCELED. Error::outcome_unknown is set as soon as any byte of the request may have
    // left.
    virtual Id send(HttpRequest request, Done done) = 0;
    virtual void cancel(Id id) = 0;
    [[nodiscard]] virtual HttpStatistics statistics() const = 0;
};

}  // namespace ckptfs
