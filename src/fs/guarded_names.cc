// SPDX-License-Identifier: Apache-2.0
#include "fs/guarded_names.h"

#include <utility>

namespace ckptfs {

std::string GuardedNames::key(NodeId parent, const std::string& name) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> directory = state_.directory(lock, parent);
    return directory ? state_.key(lock, **directory) + name : "";
}

void GuardedNames::rename(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name,
                          unsigned flags, const Caller& caller, Reply<void> reply) {
    RenamedFile renamed;
    renamed.old_key = key(parent, name);
    renamed.new_key = key(new_parent, new_name);
    renamed.process = state_.env.processes.thread_group(caller.thread).value_or(0);
    renamed.runs = [&processes = state_.env.processes](pid_t process) {
        return processes.thread_group(process).has_value();
    };
    bool is_directory = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> directory = state_.directory(lock, parent);
        if (const NodePtr node = directory ? state_.nodes.child(lock, *directory, name) : nullptr) {
            is_directory = node->type == FileType::kDirectory;
            renamed.opened = node->written;
        }
    }
    auto rename_now = [this, parent, name, new_parent, new_name, flags](Reply<void> answer) {
        renames_.rename(parent, name, new_parent, new_name, flags, std::move(answer));
    };
    const bool is_commit = gate_.is_marker(renamed.new_key) && !is_directory && renamed.old_key != renamed.new_key;
    if (!is_commit || state_.env.names.read_only) {
        rename_now(then_make_good(std::move(renamed), is_directory, std::move(reply)));
        return;
    }
    open_files_.allow_marker(renamed.new_key, renamed.old_key, [=, this](Status allowed) {
        if (allowed) {
            rename_now(then_make_good(renamed, is_directory, reply));
        } else {
            reply(std::move(allowed));
        }
    });
}

Reply<void> GuardedNames::then_make_good(RenamedFile renamed, bool is_directory, Reply<void> reply) {
    return [this, renamed = std::move(renamed), is_directory, reply = std::move(reply)](const Status& status) {
        const auto answer = [reply, status] { reply(status); };
        if (!status) {
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
    directories_.unlink(
        parent, name, [this](const std::shared_ptr<FileWriter>& writer) { open_files_.orphan(writer); },
        [this, key = key(parent, name), reply = std::move(reply)](const Status& removed) {
            if (removed) {
                state_.failed.clear(key, [reply] { reply({}); });
            } else {
                reply(removed);
            }
        });
}

void GuardedNames::rmdir(NodeId parent, const std::string& name, Reply<void> reply) {
    directories_.rmdir(parent, name, [this, key = key(parent, name), reply = std::move(reply)](const Status& removed) {
        if (removed) {
            state_.failed.clear_below(key + "/", [reply] { reply({}); });
        } else {
            reply(removed);
        }
    });
}

}  // namespace ckptfs
