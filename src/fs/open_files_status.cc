// SPDX-License-Identifier: Apache-2.0
// Progress reports on the files that are open.
#include <utility>

#include "fs/open_files.h"

namespace ckptfs::fs {
namespace {

// A program that computes between its reads is still loading.
constexpr Milliseconds kStillReading{5'000};

}  // namespace

std::vector<UploadProgress> OpenFiles::uploads() const {
    std::vector<UploadProgress> uploads;
    const NodeTable::Lock lock = state_.nodes.lock();
    for (const NodePtr& node : state_.nodes.with_writers(lock)) {
        const FileWriter& writer = *node->writer;
        uploads.push_back(UploadProgress{writer.key(), writer.progress(), node->is_unsaved(), writer.failed()});
    }
    return uploads;
}

std::vector<ReadProgress> OpenFiles::reads() const {
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

FileStatistics OpenFiles::statistics() const {
    FileStatistics statistics = counters_.snapshot();
    const NodeTable::Lock lock = state_.nodes.lock();
    statistics.names_known = state_.nodes.size(lock);
    return statistics;
}

std::vector<std::string> OpenFiles::renames() const {
    std::vector<std::string> names;
    const MutexLock lock(drain_mutex_);
    for (const auto& [change, name] : changes_) {
        if (change == NameChange::kRename) {
            names.push_back(name);
        }
    }
    return names;
}

}  // namespace ckptfs::fs
