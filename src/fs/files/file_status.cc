// SPDX-License-Identifier: Apache-2.0
#include "fs/files/file_status.h"

#include <utility>

namespace ckptfs::fs {

namespace {

// A program that computes between its reads is still loading.
constexpr Milliseconds kStillReading{5'000};

}  // namespace

std::vector<UploadProgress> FileStatus::uploads() const {
    std::vector<UploadProgress> uploads;
    const NodeTable::Lock lock = state_.nodes.lock();
    for (const NodePtr& node : state_.nodes.with_writers(lock)) {
        const FileWriter& writer = *node->writer;
        uploads.push_back(UploadProgress{writer.key(), writer.progress(), node->is_unsaved(), writer.failed()});
    }
    return uploads;
}

std::vector<ReadProgress> FileStatus::reads() const {
    const SteadyTime now = state_.env.clock.now();
    std::vector<ReadProgress> reads;
    for (const HandlePtr& handle : handles_.all()) {
        const MutexLock lock(handle->mutex);
        if (handle->reader != nullptr && now - handle->last_read.load() < kStillReading) {
            reads.push_back(ReadProgress{handle->reader->object().key, handle->reader->size(), handle->read_until});
        }
    }
    return reads;
}

FileStatistics FileStatus::statistics() const {
    FileStatistics statistics = counters_.snapshot();
    const NodeTable::Lock lock = state_.nodes.lock();
    statistics.names_known = state_.nodes.size(lock);
    return statistics;
}

std::optional<pid_t> FileStatus::process_to_tell_by(NodeId node, pid_t thread) const {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr found = state_.nodes.find(lock, node);
        if (found == nullptr || !found->shares_inode || found->open_handles == 0) {
            return std::nullopt;
        }
    }
    return state_.env.processes.thread_group(thread);
}

// Includes handles that the process has closed and that are not released yet.
NodePtr FileStatus::opened_last(const NodeTable::Lock& /*lock*/, const Node& node, pid_t process) const {
    HandlePtr last;
    for (const HandlePtr& handle : handles_.all()) {
        if (handle->inode == node.inode && handle->opener == process && !handle->is_by_name &&
            (last == nullptr || handle->opened_at >= last->opened_at)) {
            last = handle;
        }
    }
    return last != nullptr ? last->node : nullptr;
}

Attributes FileStatus::attributes(const NodeTable::Lock& lock, const Node& node, std::optional<HandleId> handle_id,
                                  std::optional<pid_t> process) const {
    const HandlePtr handle = handle_id && node.shares_inode ? handles_.find(*handle_id) : nullptr;
    NodePtr shown = handle != nullptr ? handle->node : nullptr;
    if (shown == nullptr && node.shares_inode && process) {
        shown = opened_last(lock, node, *process);
    }
    if (shown == nullptr && node.shares_inode && node.open_handles == 0 && !node.linked && !node.removed) {
        // fstat(2) comes without a handle: the handles of this inode have gone on to the version with the name.
        shown = state_.nodes.child(lock, node.parent, node.name);
    }
    const bool is_file = shown != nullptr && shown->type == FileType::kFile;
    Attributes attributes = state_.attributes(lock, is_file ? *shown : node);
    attributes.inode = node.inode;
    return attributes;
}

}  // namespace ckptfs::fs
