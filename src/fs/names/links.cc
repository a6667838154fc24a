// SPDX-License-Identifier: Apache-2.0
#include "fs/names/links.h"

#include <utility>

#include "base/store_wait.h"
#include "fs/failures/commit_policy.h"
#include "fs/state/ordered_change.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

void Links::link(NodeId id, NodeId new_parent, std::string new_name, StillCounts counts, Reply<Entry> reply) {
    if (const Status allowed = lookups_.may_be_taken(new_parent, new_name); !allowed) {
        reply(failure(allowed.error()));
        return;
    }
    std::vector<NameInDirectory> names = {{new_parent, new_name}};
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (const NodePtr node = state_.nodes.find(lock, id); node != nullptr && node->parent != nullptr) {
            names.push_back({node->parent->id, node->name});
        }
    }
    answer_in_order<Entry>(state_, std::move(names), std::move(reply),
                           [this, id, new_parent, new_name, counts = std::move(counts)] {
                               return link_now(id, new_parent, new_name, counts);
                           });
}

Result<Entry> Links::link_now(NodeId id, NodeId new_parent, const std::string& new_name, const StillCounts& counts) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    const Result<std::pair<std::string, std::string>> both = keys(id, new_parent, new_name);
    if (!both) {
        return failure(both.error());
    }
    const auto& [old_key, new_key] = *both;
    const Result<Copied> copy = gate_.copy(old_key, new_key, CopyOptions{true, counts});
    // Also after a failure: what was listed is no longer so, or the copy is there all the same.
    lookups_.forget_listed(new_parent, new_name);
    if (!copy) {
        return failure(copy.error());
    }
    state_.leftovers.forget(new_key);
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (const Result<NodePtr> parent = state_.directory(lock, new_parent)) {
            state_.note_names_changed(lock, **parent);
        }
    }
    return wait_for<Entry>([&](auto done) { lookups_.lookup(new_parent, new_name, 0, done); });
}

Result<std::pair<std::string, std::string>> Links::keys(NodeId id, NodeId new_parent,
                                                        const std::string& new_name) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const NodePtr node = state_.nodes.find(lock, id);
    const Result<NodePtr> parent = state_.directory(lock, new_parent);
    if (!parent) {
        return failure(parent.error());
    }
    if (node == nullptr || !node->linked) {
        return failure(ENOENT, "the file that was to be linked is gone");
    }
    const bool is_whole = node->committed && (node->writer == nullptr || !node->writer->dirty());
    if (node->type != FileType::kFile || !is_temporary_name(node->name) || !is_whole) {
        return failure(EPERM, node->name +
                                  " cannot be linked: a hard link is only possible from the temporary name of a "
                                  "complete file to its final name");
    }
    const std::string new_path = state_.nodes.path(lock, **parent);
    if (const Status valid = check_new_name(state_.env.prefix, new_path, new_name); !valid) {
        return failure(valid.error());
    }
    if (const NodePtr there = state_.nodes.child(lock, *parent, new_name);
        there != nullptr && is_special(there->type)) {
        return failure(EEXIST, new_name + " exists");
    }
    return std::pair{state_.key(lock, *node), state_.env.prefix + new_path + new_name};
}

}  // namespace ckptfs::fs
