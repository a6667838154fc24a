// SPDX-License-Identifier: Apache-2.0
// Renames of directories that no process finishes: found where a name is looked up or listed, and ended.
//
// A marker or record that is found is examined in the background. If the rename sends no heartbeat, its record is taken
// over, which one mount achieves, and the rename rolled back or forward (rename_recovery.h). Until then its directories
// stay hidden; no caller waits for a repair. Ages are those of the store's own clock, so that the clocks of nodes do
// not matter.
//
// A rename whose process is said to have ended is examined even if no lookup or listing finds it, and waited for no
// longer than until a heartbeat would have come, unless another mount has taken it over: that one may live.
//
// An object of a marker's size that holds something else is recognised in the same way, and hides nothing.
//
// Threads: all functions may be called from any thread, and return at once.
#pragma once

#include <map>
#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "ckptfs/object_store.h"
#include "fs/gate/commit_gate.h"
#include "fs/moves/repair_policy.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/tree_copy.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class RenameRepairs {
public:
    RenameRepairs(SharedState& state, CommitGate& gate) : state_(state), gate_(gate) {}
    ~RenameRepairs();
    RenameRepairs(const RenameRepairs&) = delete;
    RenameRepairs& operator=(const RenameRepairs&) = delete;

    // Whether this marker object of a directory, as a listing shows it, may hide the directory; has it examined if so.
    [[nodiscard]] bool hides(const ObjectInfo& marker);
    // A listing shows this record: has its rename examined.
    void met_record(const std::string& key);
    // Has a rename examined whose mount was killed on this machine; `record_key`: its record.
    void holder_is_dead(const std::string& record_key);

private:
    struct Dead {
        SteadyTime known{};
        // Examines the record again.
        std::optional<Timer::Id> timer;
    };
    struct Check {
        bool under_way = false;
        SteadyTime due{};

        [[nodiscard]] bool is_over(SteadyTime now) const { return !under_way && now >= due; }
    };

    void meet(const std::string& key);
    void looked_into(const std::string& key, std::optional<Milliseconds> again);
    // After how long to examine it again; empty if there is no need to.
    [[nodiscard]] std::optional<Milliseconds> look_into(const std::string& key);
    [[nodiscard]] std::optional<Milliseconds> look_into(const DirectoryMarker& rename, Milliseconds marker_age);
    void start_repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                      const RepairDecision& decision);
    [[nodiscard]] Status repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                                const RepairDecision& decision);
    // `had_record`: before it was made again.
    Status end(const DirectoryMarker& rename, RepairAction action, bool had_record, const MayGoOn& may_go_on);
    [[nodiscard]] Status move_failures(const DirectoryMarker& rename);
    // How long ago the record's holder was said to be dead; empty if it may live, or another mount has taken over from
    // it.
    [[nodiscard]] std::optional<Milliseconds> holder_dead_for(const DirectoryMarker& record);
    [[nodiscard]] bool is_record(const std::string& key) const;

    SharedState& state_;
    CommitGate& gate_;

    Mutex mutex_;
    // By the key of a marker or record; at most kMaxChecks.
    std::map<std::string, Check> checks_ GUARDED_BY(mutex_);
    // ETags of objects of a marker's size that are no markers; bounded.
    std::unordered_set<std::string> strangers_ GUARDED_BY(mutex_);
    // Dead holders of records, by the record's key.
    std::map<std::string, Dead> dead_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs::fs
