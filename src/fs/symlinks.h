// SPDX-License-Identifier: Apache-2.0
// symlink(2) and readlink(2): a symbolic link is a small object of its own.
//
// Threads: all functions may be called from any thread; nothing here blocks.
#pragma once

#include <memory>
#include <string>

#include "fs/lookups.h"
#include "fs/shared_state.h"

namespace ckptfs {

class Symlinks {
public:
    Symlinks(SharedState& state, Lookups& lookups) : state_(state), lookups_(lookups) {}

    // EEXIST where another mount or client was first.
    void create(NodeId parent, std::string name, std::string target, Reply<Entry> reply);
    // ESTALE where the link has been replaced.
    void read(NodeId node, Reply<std::string> reply);

private:
    struct Request {
        NodePtr parent;
        std::string name;
        std::string target;
        std::string key;
        KeyOrder::Place place = 0;
        Reply<Entry> reply;
    };

    Status begin(Request& request, NodeId parent);
    void put(const std::shared_ptr<Request>& request);
    Entry note(const Request& request, const PutResponse& made);

    SharedState& state_;
    Lookups& lookups_;
};

}  // namespace ckptfs
