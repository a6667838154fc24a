// SPDX-License-Identifier: Apache-2.0
// The threads that read the kernel's requests and hand them to the FileOperations.
//
// Workers never wait for the store: a request that must wait is a PendingRequest, and a write keeps the buffer that it
// was received into while its worker takes another one from the pool (MemoryUse::kReceive). If there is none, the
// worker keeps its own, and the write's data waits on the disk (ParkedWrites): the next request is always read. Only if
// the disk takes no more does a worker wait for a buffer.
//
// Ownership: FileOperations, pool, inspector and clock outlive the serving: destroy the file system between stop() and
// the session, because late replies still need the session. Threads: serve(), stop() and the destructor on one thread;
// the rest from any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/processes.h"
#include "ckptfs/status.h"
#include "fs/file_operations.h"
#include "fs/kernel_cache.h"
#include "fs/passthrough.h"

namespace ckptfs {

struct SessionEnvironment {
    fs::FileOperations& fs;
    BufferPool& pool;
    const ProcessInspector& processes;
    const Clock& clock;
    // For tasks that wait for the disk.
    Executor& disk;
    std::string staging_dir;
    // The kernel may read files of the file system itself, past this process (fs/passthrough.h).
    bool passes_through = false;
};

class Session {
public:
    struct Events {
        // The kernel has agreed to serve; the mount answers from now on.
        std::function<void()> ready;
        // Unmounted: no more requests will come. Called once, unless stop() was called before.
        std::function<void()> ended;
    };

    // `connection`: of Mount::connection(), or in tests one end of a SOCK_SEQPACKET pair whose other end plays the
    // kernel.
    static Result<std::unique_ptr<Session>> create(FileDescriptor connection);
    virtual ~Session() = default;

    // May be given to the file system before serving begins; notices wait until then.
    [[nodiscard]] virtual fs::KernelCache& kernel_cache() = 0;
    // Like kernel_cache(), may be given to the file system before serving begins; nothing is passed through before the
    // kernel has agreed to that.
    [[nodiscard]] virtual fs::Passthrough& passthrough() = 0;
    // Starts `workers` threads and returns. The events are called on them.
    virtual void serve(SessionEnvironment environment, int workers, Events events) = 0;
    // Ends the workers and joins them; requests that wait may still be answered. Does not wait for the kernel: the
    // mount may be attached or not.
    virtual void stop() = 0;
    // How long the worker that has been busy longest has had its request; a worker that waits for a buffer is not busy.
    [[nodiscard]] virtual Milliseconds longest_request() const = 0;
};

}  // namespace ckptfs
