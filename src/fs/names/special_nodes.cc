// SPDX-License-Identifier: Apache-2.0
#include "fs/names/special_nodes.h"

#include <linux/fs.h>

#include <cerrno>
#include <utility>

#include "base/store_wait.h"
#include "fs/objects/pinned_removal.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

void SpecialNodes::make(NodeId parent, std::string name, FileType type, SpecialAttributes attributes,
                        Reply<Entry> reply) {
    if (const Status allowed = lookups_.may_be_taken(parent, name); !allowed) {
        reply(failure(allowed.error()));
        return;
    }
    attributes.modified = state_.env.clock.wall_now();
    // After what this mount is making or removing under the name.
    answer_in_order<Entry>(state_, {{parent, name}}, std::move(reply), [this, parent, name, type, attributes] {
        return make_now({parent, name}, type, attributes);
    });
}

Result<Entry> SpecialNodes::make_now(const NameInDirectory& place, FileType type, SpecialAttributes attributes) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> parent = state_.directory(lock, place.directory);
    if (!parent) {
        return failure(parent.error());
    }
    const std::string parent_path = state_.nodes.path(lock, **parent);
    if (const Status valid = check_new_name(state_.env.prefix, parent_path, place.name); !valid) {
        return failure(valid.error());
    }
    const NodePtr there = state_.nodes.child(lock, *parent, place.name);
    if (there != nullptr && (there->is_known_here() || state_.is_fresh(lock, *there))) {
        return failure(EEXIST, place.name + " exists");
    }
    if (state_.nodes.specials(lock) >= kMost) {
        return failure(ENOSPC, "there are " + std::to_string(kMost) +
                                   " sockets and FIFOs on this mount; remove those that no program uses");
    }
    const NodePtr node = state_.nodes.link_new(lock, *parent, place.name, type);
    node->special = std::make_unique<SpecialAttributes>(attributes);
    state_.note_names_changed(lock, **parent);
    return state_.entry(lock, *node);
}

bool SpecialNodes::unlink(NodeId parent, const std::string& name) {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> directory = state_.directory(lock, parent);
    const NodePtr node = directory ? state_.nodes.child(lock, *directory, name) : nullptr;
    if (node == nullptr || !is_special(node->type)) {
        return false;
    }
    node->removed = true;
    state_.nodes.unlink(lock, node);
    state_.note_names_changed(lock, **directory);
    return true;
}

bool SpecialNodes::change(NodeId id, const AttributeChange& change) {
    const NodeTable::Lock lock = state_.nodes.lock();
    const NodePtr node = state_.nodes.find(lock, id);
    if (node == nullptr || !is_special(node->type)) {
        return false;
    }
    SpecialAttributes& special = *node->special;
    special.mode = change.mode.value_or(special.mode);
    special.uid = change.uid.value_or(special.uid);
    special.gid = change.gid.value_or(special.gid);
    special.modified = change.modified.value_or(special.modified);
    return true;
}

void SpecialNodes::rename(NameInDirectory from, NameInDirectory to, unsigned flags,
                          std::function<void(const std::shared_ptr<FileWriter>&)> orphan, Reply<void> reply) {
    answer_in_order<void>(state_, {from, to}, std::move(reply), [this, from, to, flags, orphan = std::move(orphan)] {
        return rename_now(from, to, flags, orphan);
    });
}

Status SpecialNodes::rename_now(const NameInDirectory& from, const NameInDirectory& to, unsigned flags,
                                const std::function<void(const std::shared_ptr<FileWriter>&)>& orphan) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    const Result<Move> move = resolve(from, to);
    if (!move) {
        return failure(move.error());
    }
    if (move->there == move->node) {
        return {};
    }
    if (const Status room = make_room(*move, (flags & RENAME_NOREPLACE) != 0); !room) {
        return room;
    }
    lookups_.forget_listed(move->new_parent->id, move->new_name);
    std::vector<std::shared_ptr<FileWriter>> replaced;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (!move->node->linked) {
            return failure(ENOENT, from.name + " is gone");
        }
        replaced = state_.nodes.remove(lock, move->new_parent, move->new_name);
        state_.note_names_changed(lock, *move->old_parent);
        state_.note_names_changed(lock, *move->new_parent);
        state_.nodes.move(lock, move->node, move->new_parent, move->new_name);
    }
    std::for_each(replaced.begin(), replaced.end(), orphan);
    return {};
}

Result<SpecialNodes::Move> SpecialNodes::resolve(const NameInDirectory& from, const NameInDirectory& to) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> old_parent = state_.directory(lock, from.directory);
    const Result<NodePtr> new_parent = state_.directory(lock, to.directory);
    if (!old_parent || !new_parent) {
        return failure(old_parent ? new_parent.error() : old_parent.error());
    }
    Move move;
    move.old_parent = *old_parent;
    move.node = state_.nodes.child(lock, *old_parent, from.name);
    if (move.node == nullptr || !is_special(move.node->type)) {
        return failure(ESTALE, from.name + ": another file has the name by now");
    }
    const std::string new_path = state_.nodes.path(lock, **new_parent);
    if (const Status valid = check_new_name(state_.env.prefix, new_path, to.name); !valid) {
        return failure(valid.error());
    }
    move.new_parent = *new_parent;
    move.new_name = to.name;
    move.new_key = state_.env.prefix + new_path + to.name;
    move.there = state_.nodes.child(lock, *new_parent, to.name);
    return move;
}

Status SpecialNodes::make_room(const Move& move, bool no_replace) {
    if (move.there != nullptr && is_special(move.there->type)) {
        return no_replace ? failure(EEXIST, move.new_key + " exists") : Status{};
    }
    const Result<FoundName> found = wait_for<FoundName>([&](auto done) { lookups_.find(move.new_key, done); });
    if (!found) {
        return failure(found.error());
    }
    if (found->is_directory || found->is_hidden) {
        return failure(found->is_hidden ? EBUSY : EISDIR, move.new_key + " is a directory");
    }
    bool exists = found->object.has_value();
    if (move.there != nullptr) {
        const NodeTable::Lock lock = state_.nodes.lock();
        exists = exists || move.there->writer != nullptr;
    }
    if (no_replace && exists) {
        return failure(EEXIST, move.new_key + " exists");
    }
    return found->object ? remove_current(state_.env.store, state_.env.clock, move.new_key, found->object->etag)
                         : Status{};
}

}  // namespace ckptfs::fs
