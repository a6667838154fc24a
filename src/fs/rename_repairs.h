// SPDX-License-Identifier: Apache-2.0
// Renames of directories that no process finishes: found where a name is looked up or listed, and ended.
//
// A marker or record that is met is looked into in the background. Where the rename sends no heartbeat, its record
// is taken over, which one mount achieves, and the rename rolled back or forward (rename_recovery.h). Until then its
// directories stay hidden; no caller waits for a repair. Ages are those of the store's own clock, so that the clocks of
// nodes do not matter.
//
// A rename whose process is said to have ended is looked into unasked, and waited for no longer than until a sign of
// life would have come, unless another mount has taken it over: that one may live.
//
// An object of a marker's size that holds something else is found out in the same way, and hides nothing.
//
// Threads: all functions may be called from any thread, and return at once.
#pragma once

#include <map>
#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "ckptfs/object_store.h"
#include "fs/commit_gate.h"
#include "fs/marker_objects.h"
#include "fs/repair_policy.h"
#include "fs/shared_state.h"
#include "fs/tree_copy.h"

namespace ckptfs::fs {

class RenameRepairs {
public:
    RenameRepairs(SharedState& state, CommitGate& gate) : state_(state), gate_(gate) {}
    ~RenameRepairs();
    RenameRepairs(const RenameRepairs&) = delete;
    RenameRepairs& operator=(const RenameRepairs&) = delete;

    // The marker object of a directory, as a list shows it.
    [[nodiscard]] bool hides(const ObjectInfo& marker);
    void met_record(const std::string& key);
    // The record of a rename whose mount was killed on this machine.
    void holder_is_dead(const std::string& record_key);

private:
    struct Dead {
        SteadyTime known{};
        // When its record is looked into again.
        std::optional<Timer::Id> timer;
    };
    struct Check {
        bool under_way = false;
        SteadyTime due{};

        [[nodiscard]] bool is_over(SteadyTime now) const { return !under_way && now >= due; }
    };

    void meet(const std::string& key);
    void looked_into(const std::string& key, std::optional<Milliseconds> again);
    // When to look again; nothing where there is no need to.
    [[nodiscard]] std::optional<Milliseconds> look_into(const std::string& key);
    [[nodiscard]] std::optional<Milliseconds> look_into(const DirectoryMarker& rename, Milliseconds marker_age);
    void start_repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                      const RepairDecision& decision);
    [[nodiscard]] Status repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                                const RepairDecision& decision);
    [[nodiscard]] Status end(const DirectoryMarker& rename, RepairAction action, const MayGoOn& may_go_on);
    [[nodiscard]] Status move_failures(const DirectoryMarker& rename);
    // Nothing where it may live, or another mount has taken over from it.
    [[nodiscard]] std::optional<Milliseconds> holder_dead_for(const DirectoryMarker& record);
    [[nodiscard]] bool is_record(const std::string& key) const;

    SharedState& state_;
    CommitGate& gate_;

    Mutex mutex_;
    // All bounded.
    std::map<std::string, Check> checks_ GUARDED_BY(mutex_);
    // ETags of objects that are no markers.
    std::unordered_set<std::string> strangers_ GUARDED_BY(mutex_);
    // Those that held these records.
    std::map<std::string, Dead> dead_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs::fs
