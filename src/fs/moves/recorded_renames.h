// SPDX-License-Identifier: Apache-2.0
// Which directories the renames that are under way may hide: what a list of names cannot tell, as it shows
// subdirectories without their markers.
//
// Threads: ask() may be called from any thread and does not block.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "fs/moves/rename_repairs.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

struct RecordedRenames {
    // path_hash() of directories that may be hidden, and have to be checked.
    std::unordered_set<std::uint64_t> sources;
    std::unordered_set<std::uint64_t> destinations;
    // When the records were listed: every rename whose first marker was written less than kRecordLead after this moment
    // is included. Zero: the list is incomplete.
    SteadyTime asked{};
    SteadyTime answered{};
};

class RenameRecords {
public:
    RenameRecords(SharedState& state, RenameRepairs& repairs) : state_(state), repairs_(repairs) {}

    // Replies with the records' directories; a list that was requested a moment ago is used again.
    void ask(Reply<std::shared_ptr<const RecordedRenames>> reply);

private:
    [[nodiscard]] std::shared_ptr<const RecordedRenames> take(const ListResponse& records, SteadyTime asked);

    SharedState& state_;
    RenameRepairs& repairs_;

    Mutex mutex_;
    std::shared_ptr<const RecordedRenames> last_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
