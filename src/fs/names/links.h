// SPDX-License-Identifier: Apache-2.0
// link(2) as the last step of writing a file under a temporary name, which is removed next: unlike rename(2) it never
// replaces what is there.
//
// An object has one name. So the new name is a copy, made only if there is nothing, and every link that could be meant
// to last is refused.
//
// Threads: link() may be called from any thread; it waits for the store on the blocking executor.
#pragma once

#include <string>
#include <utility>

#include "fs/gate/commit_gate.h"
#include "fs/names/lookups.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class Links {
public:
    Links(SharedState& state, Lookups& lookups, CommitGate& gate) : state_(state), lookups_(lookups), gate_(gate) {}

    // EPERM, on which programs fall back, unless the file has a temporary name and all of it is in the bucket.
    // `counts`: set if the new name is that of a commit marker.
    void link(NodeId node, NodeId new_parent, std::string new_name, StillCounts counts, Reply<Entry> reply);

private:
    Result<Entry> link_now(NodeId node, NodeId new_parent, const std::string& new_name, const StillCounts& counts);
    // The keys of both names, if the link is allowed.
    Result<std::pair<std::string, std::string>> keys(NodeId node, NodeId new_parent, const std::string& new_name) const;

    SharedState& state_;
    Lookups& lookups_;
    CommitGate& gate_;
};

}  // namespace ckptfs::fs
