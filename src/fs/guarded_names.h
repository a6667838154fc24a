// SPDX-License-Identifier: Apache-2.0
// rename, unlink and rmdir with what they mean for files that failed: a commit marker gets its name only where nothing
// below its directory has failed, and who removes or replaces a failed file makes that good.
//
// Threads: all functions may be called from any thread and return at once.
#pragma once

#include <string>

#include "fs/commit_gate.h"
#include "fs/directories.h"
#include "fs/open_files.h"
#include "fs/renames.h"
#include "fs/shared_state.h"

namespace ckptfs {

class GuardedNames {
public:
    GuardedNames(SharedState& state, CommitGate& gate, OpenFiles& open_files, Renames& renames,
                 Directories& directories)
        : state_(state), gate_(gate), open_files_(open_files), renames_(renames), directories_(directories) {}

    void rename(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name, unsigned flags,
                const Caller& caller, Reply<void> reply);
    void unlink(NodeId parent, const std::string& name, Reply<void> reply);
    void rmdir(NodeId parent, const std::string& name, Reply<void> reply);

private:
    // Empty where the directory is gone.
    [[nodiscard]] std::string key(NodeId parent, const std::string& name) const;
    [[nodiscard]] Reply<void> then_make_good(RenamedFile renamed, bool is_directory, Reply<void> reply);

    SharedState& state_;
    CommitGate& gate_;
    OpenFiles& open_files_;
    Renames& renames_;
    Directories& directories_;
};

}  // namespace ckptfs
