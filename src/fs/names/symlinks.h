// SPDX-License-Identifier: Apache-2.0
// symlink(2) and readlink(2): a symbolic link is a small object of its own.
//
// Threads: all functions may be called from any thread; create() waits for the store on the blocking executor.
#pragma once

#include <string>

#include "fs/gate/commit_gate.h"
#include "fs/names/lookups.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class Symlinks {
public:
    Symlinks(SharedState& state, Lookups& lookups, CommitGate& gate) : state_(state), lookups_(lookups), gate_(gate) {}

    // EEXIST if another mount or client was first, EBUSY if a directory's rename hides the name. `counts`: the gate's
    // permission, if the name is that of a commit marker.
    void create(NodeId parent, std::string name, std::string target, StillCounts counts, Reply<Entry> reply);
    // ESTALE where the link has been replaced.
    void read(NodeId node, Reply<std::string> reply);

private:
    Result<Entry> create_now(NodeId parent, const std::string& name, const std::string& target,
                             const StillCounts& counts);

    SharedState& state_;
    Lookups& lookups_;
    CommitGate& gate_;
};

}  // namespace ckptfs::fs
