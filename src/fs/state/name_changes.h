// SPDX-License-Identifier: Apache-2.0
// Names that are being removed, renamed or linked, or replaced by a rename: from the call on until it is answered.
//
// A caller that is killed does not wait for the store, and what it asked for takes effect later. A process that
// creates the name, or opens it for writing, waits for that and then finds what the change has left. Opened at once,
// its file would be the one that is removed or replaced: its close would succeed and save nothing.
//
// Every wait ends because every change does. Threads: all functions may be called from any thread; what waited runs in
// end(), without the mutex.
#pragma once

#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/state/nodes.h"

namespace ckptfs::fs {

struct NameInDirectory {
    NodeId directory = 0;
    std::string name;
};

class NameChanges {
public:
    // Called with the node table locked, so that an open comes before the change, or waits for it.
    void begin(const std::vector<NameInDirectory>& names) {
        const MutexLock lock(mutex_);
        for (const NameInDirectory& each : names) {
            ++changes_[key(each)].under_way;
        }
    }
    void end(const std::vector<NameInDirectory>& names) {
        std::vector<std::function<void()>> due;
        {
            const MutexLock lock(mutex_);
            for (const NameInDirectory& each : names) {
                const auto change = changes_.find(key(each));
                if (--change->second.under_way == 0) {
                    std::move(change->second.waiting.begin(), change->second.waiting.end(), std::back_inserter(due));
                    changes_.erase(change);
                }
            }
        }
        for (const std::function<void()>& run : due) {
            run();
        }
    }
    // Whether the name is being changed by more than the caller's own change.
    [[nodiscard]] bool others(const NameInDirectory& name) const {
        const MutexLock lock(mutex_);
        const auto change = changes_.find(key(name));
        return change != changes_.end() && change->second.under_way > 1;
    }
    // Calls `run` when all changes of the name have ended; returns false, without calling it, if there is none.
    [[nodiscard]] bool wait(const NameInDirectory& name, std::function<void()> run) {
        const MutexLock lock(mutex_);
        const auto change = changes_.find(key(name));
        if (change == changes_.end()) {
            return false;
        }
        change->second.waiting.push_back(std::move(run));
        return true;
    }

private:
    using Key = std::pair<NodeId, std::string>;
    struct Change {
        int under_way = 0;
        std::vector<std::function<void()>> waiting;
    };

    static Key key(const NameInDirectory& name) { return {name.directory, name.name}; }

    mutable Mutex mutex_;
    std::map<Key, Change> changes_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
