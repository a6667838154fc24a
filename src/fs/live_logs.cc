// SPDX-License-Identifier: Apache-2.0
#include "fs/live_logs.h"

#include <utility>
#include <vector>

#include "base/globs.h"

namespace ckptfs {

LiveLogs::~LiveLogs() {
    Timer::Id timer = 0;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        timer = timer_;
    }
    if (timer != 0) {
        state_.env.timer.cancel(timer);
    }
}

void LiveLogs::opened(const NodeTable::Lock& /*lock*/, Node& node) {
    const WriteConfig& config = state_.env.write.config;
    // An earlier writer of the name may have appended, and this one not: its half is not published.
    node.is_live_log = config.publish_interval != Milliseconds(0) &&
                       (node.only_appended || matches_any(node.name, config.keep_on_kill));
    if (node.is_live_log) {
        start();
    }
}

void LiveLogs::start() {
    const std::lock_guard lock(mutex_);
    if (!waiting_ && !stopping_) {
        waiting_ = true;
        timer_ = state_.env.timer.after(state_.env.write.config.publish_interval, [this] { tick(); });
    }
}

void LiveLogs::tick() {
    {
        const std::lock_guard lock(mutex_);
        waiting_ = false;
    }
    std::vector<NodePtr> logs;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.with_writers(lock)) {
            if (node->is_live_log) {
                logs.push_back(node);
            }
        }
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
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        writer = node->writer;
    }
    if (writer == nullptr || node->removed || writer->failed() || writer->pristine() || !writer->dirty()) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        if (!under_way_.insert(writer.get()).second) {
            return;
        }
    }
    publish_(node, writer, [this, writer] {
        const std::lock_guard lock(mutex_);
        under_way_.erase(writer.get());
    });
}

}  // namespace ckptfs
