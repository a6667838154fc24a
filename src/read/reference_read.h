// SPDX-License-Identifier: Apache-2.0
// Reads the earlier bytes of a file that decoding one of its frames needs.
//
// They come through the block cache, so that neighbours that refer to the same frame fetch it once. A frame that waits
// for them keeps its own memory: if none is left for them, frames could wait for each other forever. Then they are read
// one frame after the other, in memory of their own (3 MiB at most, and none when idle), which waits for nothing but
// the store. When one such read fails after the whole time for which requests are retried, those that were queued when
// it began have waited as long, and fail with it.
//
// References are followed once: a reference to a frame that itself refers to others is EIO.
//
// Ownership: what is under way keeps itself alive; the queue outlives it.
// Threads: read_references() from any thread; `done` is called exactly once, on the executor.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/status.h"
#include "read/block.h"
#include "read/file_reader.h"

namespace ckptfs {

class DirectRead;

// The queue of reads for which the cache has no memory.
class DirectReads {
public:
    void enqueue(std::shared_ptr<DirectRead> read);

private:
    void go_on();
    // Fails the reads that were queued when the first one began.
    void fail_waiting(const Error& error);

    Mutex mutex_;
    // Bounded by the blocks that are being fetched; the first is under way.
    std::deque<std::shared_ptr<DirectRead>> reads_ GUARDED_BY(mutex_);
    // How many reads were queued when the first one began, including it.
    std::size_t began_with_ GUARDED_BY(mutex_) = 0;
};

// `ranges`: as FrameLayout::references() gave them. The result is their bytes, one range after the other.
void read_references(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                     std::vector<FileRange> ranges, std::function<void(Result<Payload>)> done);

// The error for a frame that another frame refers to, but that itself refers to others.
[[nodiscard]] Error refers_further(const std::string& key, std::uint64_t offset);

}  // namespace ckptfs
