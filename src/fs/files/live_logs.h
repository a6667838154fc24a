// SPDX-License-Identifier: Apache-2.0
// Logs become visible while they grow: what was written to a file that is open for appending, or has the name of a log,
// is committed every --publish-interval, or less often (publish_pace.h). A file with nothing new costs no request. What
// cannot be published is tried again, as long as the file has not failed.
//
// Threads: all functions may be called from any thread; the destructor waits for what is running.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "fs/files/publish_pace.h"
#include "fs/state/nodes.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class LiveLogs {
public:
    // Commits what was written so far, and calls back when that is over.
    using Publish =
        std::function<void(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, Reply<void> ended)>;

    LiveLogs(SharedState& state, Publish publish) : state_(state), publish_(std::move(publish)) {}
    ~LiveLogs();
    LiveLogs(const LiveLogs&) = delete;
    LiveLogs& operator=(const LiveLogs&) = delete;

    // The node was opened for writing: whether it is a log follows from its name, or from how all its writers have
    // opened it (Node::only_appended).
    void opened(const NodeTable::Lock& lock, Node& node) REQUIRES(node_table);

private:
    struct Log {
        PublishPace pace;
        bool under_way = false;
    };

    void start();
    void tick();
    void publish(const NodePtr& node);
    [[nodiscard]] bool begin(const FileWriter& writer, std::uint64_t unpublished);

    SharedState& state_;
    const Publish publish_;

    Mutex mutex_;
    std::map<const FileWriter*, Log> logs_ GUARDED_BY(mutex_);
    bool waiting_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    Timer::Id timer_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs::fs
