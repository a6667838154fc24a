// SPDX-License-Identifier: Apache-2.0
// Names that are being removed, renamed or linked, or replaced by a rename: from the call on until it is answered.
//
// A caller that is killed does not wait for the store, and what it asked for takes effect later. A process that
// creates the name, or opens it for writing, waits for that and then finds what the change has left. Opened at once,
// its file would be the one that is removed or replaced: its close would succeed and save nothing. For the same reason
// a process that opens a file to write, or makes a directory, anywhere below a directory waits for a rename of that
// directory whose caller is gone: what it saves would be renamed with what the caller had saved. While the caller lives
// it does not wait, as copying a directory may take long.
//
// Every wait ends because every change does. Threads: all functions may be called from any thread; what waited runs in
// end(), without the mutex.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
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
    // Caller::has_left of who asked for a change; null where that is not known.
    using Left = std::shared_ptr<const std::atomic<bool>>;

    // Called with the node table locked, so that an open comes before the change, or waits for it.
    void begin(const std::vector<NameInDirectory>& names, const Left& has_left = nullptr) {
        const MutexLock lock(mutex_);
        for (const NameInDirectory& each : names) {
            Change& change = changes_[key(each)];
            ++change.under_way;
            if (has_left != nullptr) {
                change.left.push_back(has_left);
            }
        }
    }
    void end(const std::vector<NameInDirectory>& names, const Left& has_left = nullptr) {
        std::vector<std::function<void()>> due;
        {
            const MutexLock lock(mutex_);
            for (const NameInDirectory& each : names) {
                const auto change = changes_.find(key(each));
                std::vector<Left>& left = change->second.left;
                if (const auto mine = std::find(left.begin(), left.end(), has_left); mine != left.end()) {
                    left.erase(mine);
                }
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
    [[nodiscard]] bool is_under_way(const NameInDirectory& name) const {
        const MutexLock lock(mutex_);
        return !changes_.empty() && changes_.count(key(name)) > 0;
    }
    // Whether a change of the name goes on without its caller.
    [[nodiscard]] bool is_left(const NameInDirectory& name) const {
        const MutexLock lock(mutex_);
        const auto change = changes_.find(key(name));
        return change != changes_.end() && std::any_of(change->second.left.begin(), change->second.left.end(),
                                                       [](const Left& has_left) { return has_left->load(); });
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
        std::vector<Left> left;
        std::vector<std::function<void()>> waiting;
    };

    static Key key(const NameInDirectory& name) { return {name.directory, name.name}; }

    mutable Mutex mutex_;
    std::map<Key, Change> changes_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
