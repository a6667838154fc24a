// SPDX-License-Identifier: Apache-2.0
// The way of file data to the disk and back, for all writers of a mount.
//
// Parts come back one after the other: only the first in the queue takes memory, so that parts which wait cannot hold
// each other up. A part that has to wait holds none: what is still in memory of it is staged, too.
//
// Ownership: shared; what is under way keeps it.
// Threads: all functions may be called from any thread. The disk is only touched on the executor. Callbacks run there,
// without locks held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/staging_file.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/executor.h"
#include "write/part.h"

namespace ckptfs {

class Staging : public std::enable_shared_from_this<Staging> {
public:
    using Stored = std::function<void(std::vector<FrameBytes> frames, Status status)>;
    using Loaded = std::function<void(Result<Part>)>;

    // `executor`: for tasks that wait.
    Staging(BufferPool& pool, Executor& executor, std::string directory);

    // Writes the frames' bytes to the disk. The answer holds those that were written, without their bytes.
    void store(std::vector<FrameBytes> frames, Stored done);
    // Brings a part with staged frames back into memory; they are stale then.
    void load(Part part, Loaded done);

    // Parts that wait to be loaded.
    [[nodiscard]] std::size_t waiting() const;
    // Bytes on the way to the disk.
    [[nodiscard]] std::uint64_t storing() const { return storing_; }
    // Gives the disk space back once nothing is staged any more.
    void tidy();

private:
    struct Job {
        Part part;
        Loaded done;
        std::vector<Buffer> buffers;
        std::size_t wanted = 0;
    };

    Status store_now(std::vector<FrameBytes>& frames);
    void store_rest(Part& part);
    void enqueue(Part part, Loaded done);
    void take_for_first();
    void taken(Buffer buffer);
    static Status read(Part& part, std::vector<Buffer> buffers);

    BufferPool& pool_;
    Executor& executor_;
    const std::shared_ptr<StagingFile> file_;
    std::atomic<std::uint64_t> storing_{0};

    mutable std::mutex mutex_;
    // Guarded by mutex_. Bounded by the parts of the files being written.
    std::deque<Job> jobs_;
};

}  // namespace ckptfs
