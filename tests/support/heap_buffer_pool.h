// SPDX-License-Identifier: Apache-2.0
// A BufferPool for tests: buffers from the heap, kept for the next taker; one limit for all uses together, takers
// served in order.
// Threads: all functions may be called from any thread.
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ckptfs/buffer_pool.h"

namespace ckptfs {

class HeapBufferPool final : public BufferPool {
public:
    explicit HeapBufferPool(std::size_t buffers) : total_(buffers) {}

    std::optional<Buffer> try_take(MemoryUse use) override {
        const std::lock_guard lock(mutex_);
        return take_free(use);
    }

    void take(MemoryUse use, Ready ready) override {
        std::optional<Buffer> buffer;
        {
            const std::lock_guard lock(mutex_);
            buffer = take_free(use);
            if (!buffer) {
                waiting_.push_back({use, std::move(ready)});
                return;
            }
        }
        ready(std::move(*buffer));
    }

    void recharge(Buffer buffer, MemoryUse /*use*/, Ready ready) override { ready(std::move(buffer)); }
    bool try_recharge(Buffer& /*buffer*/, MemoryUse /*use*/) override { return true; }
    void add_pressure_listener(std::function<bool(MemoryUse)> /*relieve*/) override {}

    [[nodiscard]] PoolUsage usage() const override {
        const std::lock_guard lock(mutex_);
        PoolUsage usage;
        usage.total_buffers = total_;
        usage.free_buffers = total_ - in_use_;
        usage.waiting[0] = waiting_.size();
        std::fill(std::begin(usage.cap), std::end(usage.cap), total_);
        return usage;
    }

protected:
    void put_back(std::byte* data, MemoryUse /*use*/) override {
        std::unique_lock lock(mutex_);
        if (waiting_.empty()) {
            --in_use_;
            free_.emplace_back(data);
            return;
        }
        auto [use, ready] = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        ready(Buffer(this, data, use));
    }

private:
    // With the mutex held.
    std::optional<Buffer> take_free(MemoryUse use) {
        if (in_use_ == total_) {
            return std::nullopt;
        }
        ++in_use_;
        if (free_.empty()) {
            free_.push_back(std::make_unique<std::byte[]>(kBufferSize));
        }
        std::byte* data = free_.back().release();
        free_.pop_back();
        return Buffer(this, data, use);
    }

    const std::size_t total_;
    mutable std::mutex mutex_;
    // Guarded by mutex_.
    std::size_t in_use_ = 0;
    std::vector<std::unique_ptr<std::byte[]>> free_;
    std::deque<std::pair<MemoryUse, Ready>> waiting_;
};

}  // namespace ckptfs
