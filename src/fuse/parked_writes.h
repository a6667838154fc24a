// SPDX-License-Identifier: Apache-2.0
// Received writes for which there is no buffer: their data waits in --staging-dir until there is one.
//
// A worker that gave its buffer away with a write could not listen before it had another, and while the store hangs
// there is none: neither a stat nor the interrupt of a killed writer would be read any more. So a worker keeps its
// buffer then, and the data that it received is copied to the disk. The kernel bounds how much: each thread that writes
// has one request of a buffer's size under way.
//
// Parked writes get buffers in the order in which they came. Data that the disk does not return intact is EIO.
//
// Ownership: shared; writes that wait for a buffer or the disk keep it alive. Pool and executor outlive it.
// Threads: all functions may be called from any thread. park() waits for the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/staging_file.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"
#include "fs/file_operations.h"

namespace ckptfs {

class ParkedWrites : public std::enable_shared_from_this<ParkedWrites> {
public:
    using Deliver = std::function<void(Result<WriteData>)>;

    // `disk`: an executor for tasks that wait.
    ParkedWrites(BufferPool& pool, Executor& disk, const std::string& directory);

    // Copies `data`, and calls `deliver` on any thread when it lies in a buffer again; not if `wanted` returns false by
    // then. A failure is that of the disk: nothing was parked.
    Status park(ByteSpan data, std::function<bool()> wanted, Deliver deliver);
    // What is still parked is dropped.
    void stop() { stopped_ = true; }

private:
    struct Parked {
        std::shared_ptr<const StagedRange> place;
        std::size_t size = 0;
        std::uint32_t crc32c = 0;
        std::function<bool()> wanted;
        Deliver deliver;
    };
    void buffer_here(const std::shared_ptr<Parked>& parked, Buffer buffer);
    Result<WriteData> load(Parked& parked, Buffer buffer) const;

    BufferPool& pool_;
    Executor& disk_;
    const std::shared_ptr<StagingFile> file_;
    std::atomic<bool> stopped_{false};
};

}  // namespace ckptfs
