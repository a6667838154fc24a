// SPDX-License-Identifier: Apache-2.0
// The place where the first writer of an environment leaves what all its writers share.
// Threads: get() may be called from any thread.
#pragma once

#include <memory>
#include <mutex>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/config.h"

namespace ckptfs {

class WriterGroup;

class LazyWriterGroup {
public:
    [[nodiscard]] std::shared_ptr<WriterGroup> get(BufferPool& pool, const WriteConfig& config);

private:
    std::mutex mutex_;
    std::shared_ptr<WriterGroup> group_;
};

}  // namespace ckptfs
