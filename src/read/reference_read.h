// SPDX-License-Identifier: Apache-2.0
// The earlier bytes of a file that decoding one of its frames takes.
//
// They come through the block cache, so that neighbours that refer to the same frame fetch it once. A frame that waits
// for them keeps its own memory: where there is none left for them, frames could wait for each other forever. So these
// are read one after the other, in memory of their own (3 MiB at most, and none when idle), which waits for nothing but
// the store. Where one has asked the store for as long as requests are retried, those that waited when it began have
// waited as long, and fail with it.
//
// References are followed once: bytes of frames that themselves refer to others are EIO.
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

// Reads for which the cache has no memory.
class DirectReads {
public:
    void enqueue(std::shared_ptr<DirectRead> read);

private:
    void go_on();
    // Those that have waited as long as the first.
    void fail_waiting(const Error& error);

    Mutex mutex_;
    // Bounded by the blocks that are being fetched; the first is under way.
    std::deque<std::shared_ptr<DirectRead>> reads_ GUARDED_BY(mutex_);
    // That were there when the first began, with it.
    std::size_t began_with_ GUARDED_BY(mutex_) = 0;
};

// `ranges`: as FrameLayout::references() gave them. The answer is their bytes, one range behind the other.
void read_references(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                     std::vector<FileRange> ranges, std::function<void(Result<Payload>)> done);

// Of a frame that only others have asked for.
[[nodiscard]] Error refers_further(const std::string& key, std::uint64_t offset);

}  // namespace ckptfs
