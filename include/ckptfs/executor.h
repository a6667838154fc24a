// SPDX-License-Identifier: Apache-2.0
// Where computation runs: compression, decompression, checksums, hashing.
//
// Tasks never block and do no I/O; the number of tasks under way is bounded by the buffers they hold. A second
// instance with more threads serves the namespace operations (rename, rmdir, listings), which do wait for the store.
// Threads: post() may be called from any thread. Tasks run in any order. stop() runs what was posted, then joins; a
// task that is posted later runs at once, on the posting thread. The destructor stops.
#pragma once

#include <functional>
#include <utility>

namespace ckptfs {

class Executor {
public:
    virtual ~Executor() = default;
    virtual void post(std::function<void()> task) = 0;
    // Runs the task before those of post(): for what a reader or a stat waits for. The others still get their share.
    virtual void post_urgent(std::function<void()> task) { post(std::move(task)); }
    virtual void stop() {}
};

}  // namespace ckptfs
