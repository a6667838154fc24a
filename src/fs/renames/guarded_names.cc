// SPDX-License-Identifier: Apache-2.0
#include "fs/renames/guarded_names.h"

#include <linux/fs.h>

#include <utility>

#include "fs/state/ordered_change.h"

namespace ckptfs::fs {

std::string GuardedNames::key(NodeId parent, const std::string& name) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> directory = state_.directory(lock, parent);
    return directory ? state_.key(lock, **directory) + name : "";
}

RenamedFile GuardedNames::renamed_file(std::string old_key, std::string new_key, const NodePtr& node,
                                       const Caller& caller) const {
    RenamedFile renamed;
    renamed.old_key = std::move(old_key);
    renamed.new_key = std::move(new_key);
    renamed.process = state_.env.processes.thread_group(caller.thread).value_or(0);
    renamed.runs = [&processes = state_.env.processes](pid_t process) {
        return processes.thread_group(process).has_value();
    };
    if (node != nullptr) {
        const NodeTable::Lock lock = state_.nodes.lock();
        renamed.opened = node->opened_to_write;
    }
    return renamed;
}

void GuardedNames::in_turn(const std::vector<NameInDirectory>& names, std::function<void(PlaceTaken)> change) {
    const std::vector<std::string> keys = keys_of(state_, names);
    const KeyOrder::Place place = at_gate_->enter(keys);
    at_gate_->when_first(place, [=, this, order = at_gate_, change = std::move(change)] {
        // A directory above was renamed meanwhile.
        if (keys_of(state_, names) != keys) {
            in_turn(names, change);
            order->leave(place);
            return;
        }
        change([order, place] { order->leave(place); });
    });
}

void GuardedNames::rename(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name,
                          unsigned flags, const Caller& caller, Reply<void> reply) {
    if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) {
        // Refused before anything is saved for it.
        reply(failure(EINVAL, "only RENAME_NOREPLACE is supported"));
        return;
    }
    const NameInDirectory from{parent, name};
    const NameInDirectory to{new_parent, new_name};
    // The change begins before it waits, here or for the other files of a marker: its caller may be gone by the end of
    // that.
    in_turn({from, to}, [=, this, ended = begin_change<void>(state_, {from, to}, std::move(reply), caller.has_left)](
                            PlaceTaken taken) { rename_now(from, to, flags, caller, std::move(taken), ended); });
}

void GuardedNames::rename_now(const NameInDirectory& from, const NameInDirectory& to, unsigned flags,
                              const Caller& caller, PlaceTaken taken, Reply<void> reply) {
    NodePtr node;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> directory = state_.directory(lock, from.directory);
        node = directory ? state_.nodes.child(lock, *directory, from.name) : nullptr;
    }
    if (node != nullptr && is_special(node->type)) {
        specials_.rename(from, to, flags, FileFailures::orphan,
                         then_forget(key(to.directory, to.name), std::move(reply)));
        taken();
        return;
    }
    const bool is_directory = node != nullptr && node->type == FileType::kDirectory;
    if (is_directory) {
        // Holds the queue until the rename has ended: changes of names in the directory look failures up by their keys,
        // and clear them by these.
        reply = [taken = std::exchange(taken, [] {}), reply = std::move(reply)](Status renamed) {
            taken();
            reply(std::move(renamed));
        };
    }
    publish<void>(
        renamed_file(key(from.directory, from.name), key(to.directory, to.name), node, caller), is_directory,
        [this, from, to, flags, is_directory](const StillCounts& counts, const Reply<void>& answer) {
            const auto begin = [this, from, to, flags, counts, answer] {
                renames_.rename(from.directory, from.name, to.directory, to.name, flags, counts, answer);
            };
            if (is_directory) {
                once_sent(begin, answer);
            } else {
                begin();
            }
        },
        std::move(taken), std::move(reply));
}

// Waits for what a disk has acknowledged, which would come later, under the old names. That may take hours, and so
// holds no thread.
void GuardedNames::once_sent(const std::function<void()>& begin, const Reply<void>& otherwise) {
    if (state_.env.acknowledging == nullptr) {
        begin();
        return;
    }
    state_.env.acknowledging->when_sent([begin, otherwise](Status sent) {
        if (sent) {
            begin();
        } else {
            otherwise(std::move(sent));
        }
    });
}

void GuardedNames::link(NodeId id, NodeId new_parent, const std::string& new_name, const Caller& caller,
                        Reply<Entry> reply) {
    const NameInDirectory to{new_parent, new_name};
    std::vector<NameInDirectory> names{to};
    NodePtr node;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node = state_.nodes.find(lock, id);
        if (node != nullptr && node->parent != nullptr) {
            names.push_back({node->parent->id, node->name});
        }
    }
    in_turn(names, [=, this, ended = begin_change<Entry>(state_, names, std::move(reply))](PlaceTaken taken) {
        link_now(id, node, to, caller, std::move(taken), ended);
    });
}

void GuardedNames::link_now(NodeId id, const NodePtr& node, const NameInDirectory& to, const Caller& caller,
                            PlaceTaken taken, Reply<Entry> reply) {
    std::string old_key;
    if (node != nullptr) {
        const NodeTable::Lock lock = state_.nodes.lock();
        old_key = state_.key(lock, *node);
    }
    publish<Entry>(
        renamed_file(std::move(old_key), key(to.directory, to.name), node, caller), false,
        [this, id, to](StillCounts counts, Reply<Entry> answer) {
            links_.link(id, to.directory, to.name, std::move(counts), std::move(answer));
        },
        std::move(taken), std::move(reply));
}

void GuardedNames::symlink(NodeId parent, const std::string& name, const std::string& target, const Caller& caller,
                           Reply<Entry> reply) {
    const NameInDirectory to{parent, name};
    in_turn({to}, [=, this, ended = begin_change<Entry>(state_, {to}, std::move(reply))](PlaceTaken taken) {
        publish<Entry>(
            renamed_file("", key(parent, name), nullptr, caller), false,
            [this, to, target](StillCounts counts, Reply<Entry> answer) {
                symlinks_.create(to.directory, to.name, target, std::move(counts), std::move(answer));
            },
            std::move(taken), ended);
    });
}

template <class T>
void GuardedNames::publish(RenamedFile renamed, bool is_directory, std::function<void(StillCounts, Reply<T>)> change,
                           PlaceTaken taken, Reply<T> reply) {
    const bool is_commit = gate_.is_marker(renamed.new_key) && !is_directory && renamed.old_key != renamed.new_key;
    if (!is_commit || state_.env.names.read_only) {
        change({}, then_make_good<T>(std::move(renamed), is_directory, std::move(reply)));
        taken();
        return;
    }
    commits_.allow_marker(renamed.new_key, renamed.old_key, [=, this](Result<StillCounts> allowed) {
        if (allowed) {
            change(std::move(*allowed), then_make_good<T>(renamed, is_directory, reply));
            taken();
        } else {
            taken();
            reply(failure(std::move(allowed.error())));
        }
    });
}

template <class T>
Reply<T> GuardedNames::then_make_good(RenamedFile renamed, bool is_directory, Reply<T> reply) {
    return [this, renamed = std::move(renamed), is_directory, reply = std::move(reply)](const Result<T>& result) {
        const auto answer = [reply, result] { reply(result); };
        if (!result) {
            state_.failed.was_to_become(renamed.old_key, renamed.new_key);
            answer();
        } else if (is_directory) {
            state_.failed.directory_renamed(renamed.old_key + "/", renamed.new_key + "/", answer);
        } else {
            state_.failed.renamed(renamed, answer);
        }
    };
}

void GuardedNames::unlink(NodeId parent, const std::string& name, Reply<void> reply) {
    // Begins before earlier removals are made, which it may have to wait for.
    in_turn({{parent, name}}, [=, this, ended = begin_change<void>(state_, {{parent, name}}, std::move(reply))](
                                  const PlaceTaken& taken) {
        if (specials_.unlink(parent, name)) {
            taken();
            ended({});
        } else {
            directories_.unlink(parent, name, FileFailures::orphan, taken, then_forget(key(parent, name), ended));
        }
    });
}

// Clears the failure of a file under this name, once the name is removed.
Reply<void> GuardedNames::then_forget(std::string key, Reply<void> reply) {
    return [this, key = std::move(key), reply = std::move(reply)](const Status& removed) {
        if (removed) {
            state_.failed.clear(key, [reply] { reply({}); });
        } else {
            reply(removed);
        }
    };
}

void GuardedNames::rmdir(NodeId parent, const std::string& name, Reply<void> reply) {
    in_turn({{parent, name}}, [=, this, reply = std::move(reply)](const PlaceTaken& taken) {
        directories_.rmdir(parent, name, FileFailures::orphan, taken,
                           [this, key = key(parent, name), reply](const Status& removed) {
                               if (removed) {
                                   state_.failed.clear_below(key + "/", [reply] { reply({}); });
                               } else {
                                   reply(removed);
                               }
                           });
    });
}

}  // namespace ckptfs::fs
