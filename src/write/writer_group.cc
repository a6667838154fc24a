// SPDX-License-Identifier: Apache-2.0
#include "write/writer_group.h"

#include "write/lazy_writer_group.h"

namespace ckptfs {
namespace {

// What file data may take of the budget when it has to share it with reads and commits.
std::uint64_t write_budget(const BufferPool& pool) {
    return std::uint64_t{pool.usage().total_buffers} * BufferPool::kPayloadSize * 3 / 4;
}

}  // namespace

WriterGroup::WriterGroup(BufferPool& pool, const WriteConfig& config) : plan_(config, write_budget(pool)) {}

std::shared_ptr<WriterGroup> LazyWriterGroup::get(BufferPool& pool, const WriteConfig& config) {
    const std::lock_guard lock(mutex_);
    if (!group_) {
        group_ = std::make_shared<WriterGroup>(pool, config);
    }
    return group_;
}

}  // namespace ckptfs
