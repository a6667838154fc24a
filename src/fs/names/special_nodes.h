// SPDX-License-Identifier: Apache-2.0
// Sockets and FIFOs, by which processes of one machine find each other: multiprocessing's, and torch_shm_manager's, in
// TMPDIR.
//
// The kernel handles their data; here are their names, modes and owners. They are in the node table and
// nowhere else: the bucket and other mounts never see them, and they end with the mount. Each takes precedence over
// what the bucket has under its name. A rename of their directory takes them with it; where another mount removes or
// renames it, they are gone.
//
// Threads: all functions may be called from any thread; make() and rename() work on the blocking executor.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fs/names/lookups.h"
#include "fs/state/ordered_change.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class SpecialNodes {
public:
    // About 1 KB each; those of a killed program stay.
    static constexpr std::size_t kMost = 16'384;

    SpecialNodes(SharedState& state, Lookups& lookups) : state_(state), lookups_(lookups) {}

    void make(NodeId parent, std::string name, FileType type, SpecialAttributes attributes, Reply<Entry> reply);
    // False if the name is not that of a socket or FIFO.
    bool unlink(NodeId parent, const std::string& name);
    // False if the node is not a socket or FIFO.
    bool change(NodeId node, const AttributeChange& change);
    // May replace a file, which is removed first: `orphan` is called with its writer. `flags`: as for
    // FileOperations::rename().
    void rename(NameInDirectory from, NameInDirectory to, unsigned flags,
                std::function<void(const std::shared_ptr<FileWriter>&)> orphan, Reply<void> reply);

private:
    struct Move {
        NodePtr node;
        NodePtr old_parent;
        NodePtr new_parent;
        std::string new_name;
        std::string new_key;
        // What has the new name; null for nothing.
        NodePtr there;
    };

    Result<Entry> make_now(const NameInDirectory& place, FileType type, SpecialAttributes attributes);
    Status rename_now(const NameInDirectory& from, const NameInDirectory& to, unsigned flags,
                      const std::function<void(const std::shared_ptr<FileWriter>&)>& orphan);
    [[nodiscard]] Result<Move> resolve(const NameInDirectory& from, const NameInDirectory& to) const;
    // Removes what the bucket holds under the new name, unless that is a directory or must not be replaced.
    Status make_room(const Move& move, bool no_replace);

    SharedState& state_;
    Lookups& lookups_;
};

}  // namespace ckptfs::fs
