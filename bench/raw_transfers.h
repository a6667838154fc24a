// SPDX-License-Identifier: Apache-2.0
// Plain HTTP requests over a fixed number of connections: what libcurl alone can carry, the measure of the mount.
// Belongs to one thread, which run() keeps busy until every request has its reply. Errors are exceptions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ckptfs::bench {

struct RawRequest {
    std::string method;
    std::string url;
    std::string range;                // "first-last"; empty for the whole object
    std::span<const std::byte> body;  // must stay until run() returns
    std::size_t expected_bytes = 0;   // a payload that goes into the connection's buffer; 0 for a reply to keep as text
};

struct RawReply {
    std::string text;
    std::string etag;
};

struct RawOptions {
    unsigned connections = 16;
    std::size_t largest_payload = 0;  // bytes; a buffer of this size is kept for each connection
    std::string ca_bundle;            // file of PEM certificates; empty for the system's
};

class RawTransfers {
public:
    explicit RawTransfers(const RawOptions& options);
    ~RawTransfers();
    RawTransfers(const RawTransfers&) = delete;
    RawTransfers& operator=(const RawTransfers&) = delete;

    // Replies in the order of the requests. Throws at the first that fails or is answered with an error.
    std::vector<RawReply> run(std::span<const RawRequest> requests);
    RawReply run_one(const RawRequest& request) { return run({&request, 1}).front(); }

private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

}  // namespace ckptfs::bench
