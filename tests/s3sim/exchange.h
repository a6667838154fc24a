// SPDX-License-Identifier: Apache-2.0
#pragma once

// The seam between HTTP and what is served: the application plans how a request's body is received and, when it is
// there, how the reply goes out, faults included. The HTTP side knows nothing of S3.
// An Application is called from several threads; an Exchange only from its connection's.

#include <memory>
#include <optional>
#include <vector>

#include "body_receiver.h"
#include "http_message.h"
#include "pacer.h"

namespace ckptfs::s3sim {

enum class Ending {
    kKeepAlive,
    kClose,  // orderly, after everything was sent
    kReset,  // at once
    kHang,   // silence until released, or until the peer goes away
};

struct RequestPlan {
    BodyPlan body;
    bool refuse_body = false;                 // reply at once and close, without reading the body
    std::optional<std::uint64_t> stop_after;  // wire bytes of the body after which `stop` happens
    Ending stop = Ending::kReset;
    std::optional<double> bytes_per_second;  // instead of the model's rate per connection
};

struct ReplySegment {
    Duration wait{};  // before its first byte
    ByteChain bytes;
};

struct ReplyPlan {
    std::vector<ReplySegment> segments;
    Ending ending = Ending::kKeepAlive;
    std::optional<Duration> hang_for;        // then reset; absent: until released
    std::optional<double> bytes_per_second;  // instead of the model's rate per connection
};

struct Transferred {
    std::uint64_t in = 0;
    std::uint64_t out = 0;
};

class Exchange {
public:
    // Destroyed when the reply has gone out or the connection is lost.
    virtual ~Exchange() = default;
    virtual const RequestPlan& plan() const = 0;
    virtual ReplyPlan reply(ReceivedBody body) = 0;
    // The connection now stays silent by a fault.
    virtual void hang() = 0;
    // Just before the last bytes of the reply go out, so that a client that has them finds its request counted; else
    // when the exchange ends. Only the first call counts.
    virtual void transferred(const Transferred& bytes) = 0;
};

class Application {
public:
    virtual ~Application() = default;
    virtual std::unique_ptr<Exchange> begin(HttpRequest request, bool from_loopback) = 0;
    // The reply to something that is not HTTP; the connection closes after it.
    virtual ByteChain malformed(const std::string& reason) = 0;
    virtual void connection_opened() = 0;
    virtual void connection_closed() = 0;
};

}  // namespace ckptfs::s3sim
