// SPDX-License-Identifier: Apache-2.0
// One read that waits for blocks: collects its slices and answers once.
//
// Threads: deliver() and fail() may be called from any thread, also concurrently. The answer is posted to the executor,
// so that the threads that move bytes from the network do not also copy them to the kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/bytes.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"
#include "read/file_reader.h"

namespace ckptfs {

class PendingRead : public std::enable_shared_from_this<PendingRead> {
public:
    // size > 0.
    PendingRead(Executor& executor, std::uint64_t offset, std::size_t size, FileReader::ReadDone done);

    [[nodiscard]] std::uint64_t offset() const { return offset_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    // A read has one piece per block.
    [[nodiscard]] std::uint64_t first_block() const;
    [[nodiscard]] std::size_t pieces() const { return slices_.size(); }

    // Each piece is delivered or failed once.
    void deliver(std::size_t piece, Slice slice);
    void fail(const Error& error);
    void fail_all(const Error& error);

private:
    void settle(std::size_t pieces);

    Executor& executor_;
    const std::uint64_t offset_;
    const std::size_t size_;
    FileReader::ReadDone done_;
    std::vector<Slice> slices_;
    std::atomic<std::size_t> missing_;
    Mutex mutex_;
    std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
