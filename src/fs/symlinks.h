// SPDX-License-Identifier: Apache-2.0
// symlink(2) and readlink(2): a symbolic link is a small object of its own.
//
// Threads: all functions may be called from any thread; create() waits for the store on the blocking executor.
#pragma once

#include <string>

#include "fs/lookups.h"
#include "fs/shared_state.h"

namespace ckptfs::fs {

class Symlinks {
public:
    Symlinks(SharedState& state, Lookups& lookups) : state_(state), lookups_(lookups) {}

    // EEXIST where another mount or client was first, EBUSY where a directory's rename hides the name.
    void create(NodeId parent, std::string name, std::string target, Reply<Entry> reply);
    // ESTALE where the link has been replaced.
    void read(NodeId node, Reply<std::string> reply);

private:
    Result<Entry> create_now(NodeId parent, const std::string& name, const std::string& target);

    SharedState& state_;
    Lookups& lookups_;
};

}  // namespace ckptfs::fs
