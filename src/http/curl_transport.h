// SPDX-License-Identifier: Apache-2.0
// HttpTransport on libcurl's multi interface: a few threads, each an event loop over its share of the connections.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct CurlTransportOptions {
    int threads = 2;
    // Connections of all threads together; further requests wait in the order they came, and their stall timeout does
    // not run. Callers bound the number of requests, so the queue is bounded by them.
    int max_connections = 64;
    // How many of them are reserved for light requests, on an additional thread; 0: none. Light requests beyond this
    // number go with the others.
    int light_connections = 0;
    // PEM file of trusted authorities; empty for the system's.
    std::string ca_bundle;
    // Bytes per send() and recv(). Larger saves system calls until the buffers of all connections fall out of the
    // processor's caches; bench/s3_client measures it.
    std::size_t send_buffer = std::size_t{256} << 10;
    std::size_t receive_buffer = std::size_t{256} << 10;
    // Most bytes of collected bodies, all together (collected_body.h).
    std::size_t max_collected = std::size_t{64} << 20;
    // The time over which a body's rate is compared with others: if it were shorter, pauses would count as crawling.
    Milliseconds crawl_window{4'000};
};

// Starts the threads. Destroying the transport completes what is under way with ECANCELED and joins them; it must not
// happen inside a callback.
[[nodiscard]] Result<std::unique_ptr<HttpTransport>> make_curl_transport(const CurlTransportOptions& options);

}  // namespace ckptfs
