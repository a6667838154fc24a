// SPDX-License-Identifier: Apache-2.0
#include "fs/files/live_logs.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/globs.h"

namespace ckptfs::fs {

LiveLogs::~LiveLogs() {
    Timer::Id timer = 0;
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        timer = timer_;
    }
    if (timer != 0) {
        state_.env.timer.cancel(timer);
    }
}

void LiveLogs::opened(const NodeTable::Lock& /*lock*/, Node& node) {
    const WriteConfig& config = state_.env.write.config;
    // An earlier writer of the name may have appended, and this one not: what it has half written is not published.
    node.is_live_log = config.publish_interval != Milliseconds(0) &&
                       (node.only_appended || matches_any(node.name, config.keep_on_kill));
    if (node.is_live_log) {
        start();
    }
}

void LiveLogs::start() {
    const MutexLock lock(mutex_);
    if (!waiting_ && !stopping_) {
        waiting_ = true;
        timer_ = state_.env.timer.after(state_.env.write.config.publish_interval, [this] { tick(); });
    }
}

void LiveLogs::tick() {
    {
        const MutexLock lock(mutex_);
        waiting_ = false;
    }
    std::vector<NodePtr> logs;
    std::set<const FileWriter*> writers;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.with_writers(lock)) {
            if (node->is_live_log) {
                logs.push_back(node);
                writers.insert(node->writer.get());
            }
        }
    }
    {
        const MutexLock lock(mutex_);
        std::erase_if(logs_, [&](const auto& log) { return !log.second.under_way && writers.count(log.first) == 0; });
    }
    for (const NodePtr& log : logs) {
        publish(log);
    }
    if (!logs.empty()) {
        start();
    }
}

void LiveLogs::publish(const NodePtr& node) {
    std::shared_ptr<FileWriter> writer;
    std::uint64_t published = 0;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        // The file may have been opened in another way than a log since tick() found it.
        writer = node->is_live_log ? node->writer : nullptr;
        published = node->committed ? node->committed->size : 0;
    }
    if (writer == nullptr || node->removed || writer->failed() || writer->pristine() || !writer->dirty()) {
        return;
    }
    const std::uint64_t size = writer->size();
    if (!begin(*writer, size - std::min(published, size))) {
        return;
    }
    publish_(node, writer, [this, writer](const Status& ended) {
        const MutexLock lock(mutex_);
        if (const auto log = logs_.find(writer.get()); log != logs_.end()) {
            log->second.under_way = false;
            log->second.pace.ended(ended.has_value());
        }
    });
}

bool LiveLogs::begin(const FileWriter& writer, std::uint64_t unpublished) {
    const std::uint64_t sent_again = writer.sent_again();
    const MutexLock lock(mutex_);
    Log& log = logs_.try_emplace(&writer, Log{PublishPace(state_.env.write.config.publish_interval)}).first->second;
    log.pace.passed(unpublished, sent_again);
    if (log.under_way || !log.pace.is_due()) {
        return false;
    }
    log.under_way = true;
    log.pace.begins();
    return true;
}

}  // namespace ckptfs::fs
