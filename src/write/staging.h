// SPDX-License-Identifier: Apache-2.0
// The way of file data to the disk and back, for all writers of a mount.
//
// Parts come back one after the other, and are made ready to leave before the next takes memory, so that parts which
// wait cannot block each other. A part that has to wait holds no memory: what is still in memory of it is staged, too.
// What the disk does not take stays in memory, and its part is given up if nothing else helps.
//
// Ownership: shared; tasks under way keep it alive.
// Threads: all functions may be called from any thread. The disk is only touched on the executor for tasks that wait.
// Callbacks run on either executor, without locks held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/staging_file.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/executor.h"
#include "write/part.h"

namespace ckptfs {

class Staging : public std::enable_shared_from_this<Staging> {
public:
    using Stored = std::function<void(std::vector<FrameBytes> frames, Status status)>;
    using Prepared = std::function<void(Result<Part>)>;

    // `executor`: for tasks that wait; `compute`: for those that encode.
    Staging(BufferPool& pool, Executor& executor, Executor& compute, std::string directory);

    // Writes the frames' bytes to the disk. `done` gets those that were written, without their bytes.
    void store(std::vector<FrameBytes> frames, Stored done);
    // `done` gets the part with all its bytes in memory and encoded, padded to `least` bytes.
    void prepare(Part part, std::shared_ptr<const FrameEncoder> encoder, std::uint64_t least, Prepared done);

    // Parts that wait to be loaded or encoded.
    [[nodiscard]] std::size_t waiting() const;
    // For when the first part may wait for memory that nothing else frees: gives up the last part that holds some, with
    // the error for which the disk did not take it.
    void give_up_one();
    // Bytes on the way to the disk.
    [[nodiscard]] std::uint64_t storing() const { return storing_; }
    // Gives the disk space back once nothing is staged any more.
    void tidy();

private:
    struct Job {
        Part part;
        std::shared_ptr<const FrameEncoder> encoder;
        std::uint64_t least = 0;
        // Empty if the job was given up.
        Prepared done;
        // Why the disk did not take what is in memory of the part.
        std::optional<Error> unstored;
        // Of the first job: its memory has been requested; it waits for a buffer, and belongs to no task.
        bool begun = false;
        bool waits = false;
        // Buffers, and how many are needed, for what is on the disk, and for what encoding makes of it.
        std::vector<Buffer> loading;
        std::size_t to_load = 0;
        std::vector<Buffer> encoding;
        std::size_t to_encode = 0;
    };

    Status store_now(std::vector<FrameBytes>& frames);
    void store_rest(Job& job);
    // False if `first_only`, and the job would not be the first.
    bool enqueue(Job& job, bool first_only);
    // Goes on with the first job: takes its next buffer, or begins its next task when it has all.
    void go_on();
    // False if the job goes on later.
    bool begin(Job& job);
    bool take_at_once(Job& job);
    void take(Job& job, MemoryUse use);
    void taken(Buffer buffer);
    void load(Job& job);
    void encode(Job& job);
    void finish(Result<Part> result);
    static Status read(Part& part, std::vector<Buffer> buffers);

    BufferPool& pool_;
    Executor& executor_;
    Executor& compute_;
    const std::shared_ptr<StagingFile> file_;
    std::atomic<std::uint64_t> storing_{0};

    mutable Mutex mutex_;
    // Bounded by the parts of the files being written. The first belongs to its current task, unless it waits for a
    // buffer.
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
