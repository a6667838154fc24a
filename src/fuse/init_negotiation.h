// SPDX-License-Identifier: Apache-2.0
// The part of the INIT exchange that libfuse 3.14 leaves out; set in the INIT reply on its way to the kernel, if the
// kernel offered it.
//
// FUSE_DIRECT_IO_ALLOW_MMAP (linux/fuse.h, protocol 7.39, kernel 6.6) lets a file that is read with direct_io be mapped
// shared as well; libfuse can name it from 3.17 on. FUSE_HANDLE_KILLPRIV_V2 (protocol 7.33, kernel 5.12) lets the
// kernel remember that a file has no security.capability, which it otherwise asks for before every write; nothing here
// has privileges that a write would have to take away. libfuse does not name it. FUSE_PARALLEL_DIROPS lets lookups in
// one directory go on side by side; libfuse 3.14 agrees to it but does not say so in the reply. FUSE_PASSTHROUGH
// (protocol 7.40, kernel 6.9) lets the kernel read a file on a local disk in place of one of ours; libfuse knows it
// from 3.17 on.
//
// Threads: on_request() and on_reply() may be called from any thread.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/mutex.h"
#include "ckptfs/bytes.h"

namespace ckptfs {

class InitNegotiation {
public:
    // To be called before the session serves.
    void want_passthrough() { wants_passthrough_.store(true, std::memory_order_release); }
    void on_request(ByteSpan request);
    // Changes the reply in place when it answers the INIT request; true if it does.
    bool on_reply(const struct iovec* parts, int count);

    [[nodiscard]] bool direct_io_allows_mmap() const { return direct_io_allows_mmap_.load(std::memory_order_acquire); }
    [[nodiscard]] bool passes_through() const { return passes_through_.load(std::memory_order_acquire); }

private:
    struct Request {
        std::uint64_t unique = 0;
        std::uint32_t flags = 0;
        std::uint32_t flags2 = 0;
    };

    // Set once INIT is answered: spares every later request the mutex.
    std::atomic<bool> finished_{false};
    std::atomic<bool> wants_passthrough_{false};
    std::atomic<bool> direct_io_allows_mmap_{false};
    std::atomic<bool> passes_through_{false};
    Mutex mutex_;
    std::optional<Request> request_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
