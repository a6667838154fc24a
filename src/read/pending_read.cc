// SPDX-License-Identifier: Apache-2.0
#include "read/pending_read.h"

#include <utility>

namespace ckptfs {

namespace {

std::size_t blocks_touched(std::uint64_t offset, std::size_t size) {
    return static_cast<std::size_t>((offset + size - 1) / kFrameSize - offset / kFrameSize + 1);
}

}  // namespace

PendingRead::PendingRead(Executor& executor, std::uint64_t offset, std::size_t size, FileReader::ReadDone done)
    : executor_(executor),
      offset_(offset),
      size_(size),
      done_(std::move(done)),
      slices_(blocks_touched(offset, size)),
      missing_(slices_.size()) {}

std::uint64_t PendingRead::first_block() const {
    return offset_ / kFrameSize;
}

void PendingRead::deliver(std::size_t piece, Slice slice) {
    slices_[piece] = std::move(slice);
    settle(1);
}

void PendingRead::fail(const Error& error) {
    {
        const MutexLock lock(mutex_);
        if (!error_) {
            error_ = error;
        }
    }
    settle(1);
}

void PendingRead::fail_all(const Error& error) {
    {
        const MutexLock lock(mutex_);
        error_ = error;
    }
    settle(slices_.size());
}

void PendingRead::settle(std::size_t pieces) {
    if (missing_.fetch_sub(pieces, std::memory_order_acq_rel) != pieces) {
        return;
    }
    executor_.post_urgent([self = shared_from_this()] {
        std::optional<Error> error;
        {
            const MutexLock lock(self->mutex_);
            error = std::move(self->error_);
        }
        if (error) {
            self->slices_.clear();
            self->done_(failure(std::move(*error)));
            return;
        }
        Payload payload;
        for (Slice& slice : self->slices_) {
            payload.append(std::move(slice));
        }
        self->slices_.clear();
        self->done_(std::move(payload));
    });
}

}  // namespace ckptfs
