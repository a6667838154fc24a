// SPDX-License-Identifier: Apache-2.0
#pragma once

// A non-blocking connected socket, plain or TLS. Owns its descriptor. Used by one thread at a time.

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

namespace ckptfs::s3sim {

enum class IoStatus { kMoved, kWouldBlock, kClosed };

struct IoResult {
    IoStatus status = IoStatus::kWouldBlock;
    std::size_t bytes = 0;
};

class Stream {
public:
    virtual ~Stream() = default;
    virtual int fd() const = 0;
    virtual IoResult receive(std::span<std::byte> buffer) = 0;
    virtual IoResult send(std::span<iovec> pieces) = 0;
    // Says to the peer that nothing more will come; what was sent before still arrives.
    virtual void finish_sending() = 0;
    // The peer sees a reset instead of an orderly end when this object goes.
    void reset_on_close();
};

// Takes ownership of the descriptor.
std::unique_ptr<Stream> make_plain_stream(int fd);

class TlsContext {
public:
    virtual ~TlsContext() = default;
    // Takes ownership of the descriptor. The context must outlive the stream.
    virtual std::unique_ptr<Stream> accept(int fd) = 0;
};

}  // namespace ckptfs::s3sim
