// SPDX-License-Identifier: Apache-2.0
// rename, link, symlink, unlink and rmdir with their effect on failed files: a commit marker gets its name only if
// nothing below its directory has failed, and removing or replacing a failed file resolves the failure.
//
// A rename to a commit marker waits for other files, and has no place in KeyOrder meanwhile: their commits may have to
// wait for what came after it. Changes of its names, or of a directory above them, wait in a queue of their own until
// the rename has that place, or is refused. Others stay in that queue as well: a removal that waits for a batch to be
// sent, and a directory's rename until it has ended, since the keys of failures below it change. No commit waits there,
// no batch, and no other change that has its place in KeyOrder, so that there is no cycle.
//
// Threads: all functions may be called from any thread and return at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fs/files/file_commits.h"
#include "fs/gate/commit_gate.h"
#include "fs/names/directories.h"
#include "fs/names/links.h"
#include "fs/names/special_nodes.h"
#include "fs/names/symlinks.h"
#include "fs/renames/renames.h"
#include "fs/state/key_order.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class GuardedNames {
public:
    GuardedNames(SharedState& state, CommitGate& gate, FileCommits& commits, Renames& renames, Links& links,
                 Symlinks& symlinks, Directories& directories, SpecialNodes& specials)
        : state_(state),
          gate_(gate),
          commits_(commits),
          renames_(renames),
          links_(links),
          symlinks_(symlinks),
          directories_(directories),
          specials_(specials) {}

    void rename(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name, unsigned flags,
                const Caller& caller, Reply<void> reply);
    void link(NodeId node, NodeId new_parent, const std::string& new_name, const Caller& caller, Reply<Entry> reply);
    void symlink(NodeId parent, const std::string& name, const std::string& target, const Caller& caller,
                 Reply<Entry> reply);
    void unlink(NodeId parent, const std::string& name, Reply<void> reply);
    void rmdir(NodeId parent, const std::string& name, Reply<void> reply);

private:
    // Empty if the directory is gone.
    [[nodiscard]] std::string key(NodeId parent, const std::string& name) const;
    [[nodiscard]] RenamedFile renamed_file(std::string old_key, std::string new_key, const NodePtr& node,
                                           const Caller& caller) const;
    using PlaceTaken = Directories::PlaceTaken;
    // Calls `change` when no earlier change of these names is in the queue. `change` calls its argument once it has its
    // place in KeyOrder, or is refused; the rename of a directory once it has ended.
    void in_turn(const std::vector<NameInDirectory>& names, std::function<void(PlaceTaken)> change);
    // What rename() does in its turn.
    void rename_now(const NameInDirectory& from, const NameInDirectory& to, unsigned flags, const Caller& caller,
                    PlaceTaken taken, Reply<void> reply);
    void once_sent(const std::function<void()>& begin, const Reply<void>& otherwise);
    void link_now(NodeId id, const NodePtr& node, const NameInDirectory& to, const Caller& caller, PlaceTaken taken,
                  Reply<Entry> reply);
    // Makes the change if no failed file forbids it.
    template <class T>
    void publish(RenamedFile renamed, bool is_directory, std::function<void(StillCounts, Reply<T>)> change,
                 PlaceTaken taken, Reply<T> reply);
    template <class T>
    [[nodiscard]] Reply<T> then_make_good(RenamedFile renamed, bool is_directory, Reply<T> reply);

    [[nodiscard]] Reply<void> then_forget(std::string key, Reply<void> reply);

    SharedState& state_;
    CommitGate& gate_;
    FileCommits& commits_;
    Renames& renames_;
    Links& links_;
    Symlinks& symlinks_;
    Directories& directories_;
    SpecialNodes& specials_;
    // The queue; shared, because a change may leave it after the last reply.
    const std::shared_ptr<KeyOrder> at_gate_ = std::make_shared<KeyOrder>();
};

}  // namespace ckptfs::fs
