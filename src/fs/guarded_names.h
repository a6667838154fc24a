// SPDX-License-Identifier: Apache-2.0
// rename, link, unlink and rmdir with what they mean for files that failed: a commit marker gets its name only where
// nothing below its directory has failed, and removing or replacing a failed file makes that good.
//
// Threads: all functions may be called from any thread and return at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fs/commit_gate.h"
#include "fs/directories.h"
#include "fs/links.h"
#include "fs/open_files.h"
#include "fs/renames.h"
#include "fs/shared_state.h"
#include "fs/special_nodes.h"

namespace ckptfs::fs {

class GuardedNames {
public:
    GuardedNames(SharedState& state, CommitGate& gate, OpenFiles& open_files, Renames& renames, Links& links,
                 Directories& directories, SpecialNodes& specials)
        : state_(state),
          gate_(gate),
          open_files_(open_files),
          renames_(renames),
          links_(links),
          directories_(directories),
          specials_(specials) {}

    void rename(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name, unsigned flags,
                const Caller& caller, Reply<void> reply);
    void link(NodeId node, NodeId new_parent, const std::string& new_name, const Caller& caller, Reply<Entry> reply);
    void unlink(NodeId parent, const std::string& name, Reply<void> reply);
    void rmdir(NodeId parent, const std::string& name, Reply<void> reply);

private:
    // Empty where the directory is gone.
    [[nodiscard]] std::string key(NodeId parent, const std::string& name) const;
    [[nodiscard]] RenamedFile renamed_file(std::string old_key, std::string new_key, const NodePtr& node,
                                           const Caller& caller) const;
    // Of these names, until the reply (name_changes.h).
    [[nodiscard]] Reply<void> begin_change(const std::vector<NameInDirectory>& names, Reply<void> reply);
    // Makes the change if no failed file forbids it.
    template <class T>
    void publish(RenamedFile renamed, bool is_directory, std::function<void(Reply<T>)> change, Reply<T> reply);
    template <class T>
    [[nodiscard]] Reply<T> then_make_good(RenamedFile renamed, bool is_directory, Reply<T> reply);

    [[nodiscard]] Reply<void> then_forget(std::string key, Reply<void> reply);
    [[nodiscard]] Directories::Orphan orphan();

    SharedState& state_;
    CommitGate& gate_;
    OpenFiles& open_files_;
    Renames& renames_;
    Links& links_;
    Directories& directories_;
    SpecialNodes& specials_;
};

}  // namespace ckptfs::fs
