// SPDX-License-Identifier: Apache-2.0
#include "fs/renames.h"

#include <linux/fs.h>

#include <utility>

#include "fs/object_copy.h"
#include "fs/paths.h"
#include "fs/store_wait.h"
#include "fs/tree_copy.h"

namespace ckptfs {

void Renames::rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                     Reply<void> reply) {
    state_.env.blocking.post(
        [this, parent, name = std::move(name), new_parent, new_name = std::move(new_name), flags,
         reply = std::move(reply)] { reply(rename_now(parent, name, new_parent, new_name, flags)); });
}

Status Renames::rename_now(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name,
                           unsigned flags) {
    if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) {
        return failure(EINVAL, "only RENAME_NOREPLACE is supported");
    }
    if (state_.env.names.read_only) {
        return failure(EROFS, "mounted read-only");
    }
    Result<Move> move = resolve(parent, name, new_parent, new_name);
    if (!move) {
        return failure(move.error());
    }
    move->no_replace = (flags & RENAME_NOREPLACE) != 0;
    if (move->old_key == move->new_key) {
        return {};
    }
    if (const Status possible = check_target(*move); !possible) {
        return possible;
    }
    std::shared_ptr<FileWriter> replaced;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (const NodePtr target = state_.nodes.child(lock, move->new_parent, new_name)) {
            replaced = target->writer;
        }
    }
    // Before the copy: a commit that is on its way would overwrite it.
    if (replaced != nullptr) {
        open_files_.orphan(replaced);
    }
    const Status renamed = move->node->type == FileType::kDirectory ? rename_directory(*move) : rename_file(*move);
    if (!renamed) {
        return renamed;
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        move->old_parent->known_names.erase(name);
        state_.note_name(lock, *move->new_parent, new_name);
        move->node->checked = state_.env.clock.now();
    }
    directories_.keep_when_empty(move->old_parent);
    return {};
}

Result<Renames::Move> Renames::resolve(NodeId parent, const std::string& name, NodeId new_parent,
                                       const std::string& new_name) {
    const Result<Entry> source = wait_for<Entry>([&](auto done) { lookups_.lookup(parent, name, done); });
    if (!source) {
        return failure(source.error());
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    Move move;
    move.node = state_.nodes.find(lock, source->node);
    state_.nodes.forget(lock, move.node, 1);
    const Result<NodePtr> from = state_.directory(lock, parent);
    const Result<NodePtr> to = state_.directory(lock, new_parent);
    if (!from || !to) {
        return failure(from ? to.error() : from.error());
    }
    move.old_parent = *from;
    move.new_parent = *to;
    move.new_name = new_name;
    const std::string new_path = state_.nodes.path(lock, **to);
    if (const Status valid = check_new_name(state_.env.prefix, new_path, new_name); !valid) {
        return failure(valid.error());
    }
    if (move.node == *to || state_.nodes.is_below(lock, **to, *move.node)) {
        return failure(EINVAL, "a directory cannot be moved into itself");
    }
    move.old_key = state_.key(lock, **from) + name;
    move.new_key = state_.env.prefix + new_path + new_name;
    return move;
}

// The kernel has just looked the target up and refuses a file over a directory and the reverse by itself; the bucket is
// asked only where that is not enough.
Status Renames::check_target(const Move& move) {
    const bool is_directory = move.node->type == FileType::kDirectory;
    if (!move.no_replace && !is_directory) {
        return {};
    }
    const Result<FoundName> target = wait_for<FoundName>([&](auto done) { lookups_.find(move.new_key, done); });
    if (!target) {
        return failure(target.error());
    }
    if (move.no_replace && (target->object || target->is_directory)) {
        return failure(EEXIST, move.new_key + " exists");
    }
    if (!is_directory || !target->is_directory) {
        return {};
    }
    ListRequest list;
    list.prefix = move.new_key + "/";
    list.max_keys = 2;
    const Result<ListResponse> below = wait_for<ListResponse>([&](auto done) { state_.env.store.list(list, done); });
    if (!below) {
        return failure(below.error());
    }
    for (const ObjectInfo& object : below->objects) {
        if (object.key != list.prefix) {
            return failure(ENOTEMPTY, move.new_key + " is not empty");
        }
    }
    return {};
}

// --- files

Status Renames::rename_file(const Move& move) {
    const Result<bool> published = publish_under_new_name(move);
    if (!published) {
        return failure(published.error());
    }
    if (*published) {
        return {};
    }
    const Result<ObjectVersion> copy =
        copy_object(state_.env.store, move.old_key, move.new_key, CopyOptions{move.no_replace});
    if (!copy) {
        return failure(copy.error());
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        state_.nodes.move(lock, move.node, move.new_parent, move.new_name);
        note_moved_file(lock, *move.node, *copy);
    }
    return remove_key(move.old_key);
}

Result<bool> Renames::publish_under_new_name(const Move& move) {
    std::shared_ptr<FileWriter> writer;
    bool in_bucket = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        writer = move.node->writer;
        in_bucket = move.node->committed.has_value();
    }
    if (writer == nullptr) {
        return false;
    }
    if (const std::optional<Error> failed = writer->failed()) {
        return failure(*failed);
    }
    if (!writer->dirty()) {
        return false;
    }
    const bool moved = writer->move_to(move.new_key);
    if (const Status committed = commit_writer(move.node, writer); !committed) {
        return failure(committed.error());
    }
    if (!moved) {
        return false;
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        state_.nodes.move(lock, move.node, move.new_parent, move.new_name);
    }
    if (in_bucket) {
        if (const Status removed = remove_key(move.old_key); !removed) {
            return failure(removed.error());
        }
    }
    return true;
}

Status Renames::commit_writer(const NodePtr& node, const std::shared_ptr<FileWriter>& writer) {
    return wait_for<void>([&](auto done) { open_files_.commit(node, writer, CommitReason::kRename, done); });
}

// The bytes are the same, and so are the pages the kernel has of them.
void Renames::note_moved_file(const NodeTable::Lock& lock, Node& node, const ObjectVersion& version) {
    if (node.committed && node.pages_etag == node.committed->etag) {
        node.pages_etag = version.etag;
    }
    node.committed = version;
    node.reader = nullptr;
    node.checked = state_.env.clock.now();
    if (node.writer != nullptr) {
        node.writer->committed_moved(
            state_.key(lock, node), CommittedObject{version.etag, version.stored_size, version.size, version.modified});
    }
}

Status Renames::remove_key(const std::string& key) {
    return wait_for<void>([&](auto done) { state_.env.store.remove(key, done); });
}

// --- directories

Status Renames::rename_directory(const Move& move) {
    if (const Status committed = commit_writers_below(move.node); !committed) {
        return committed;
    }
    const std::string old_prefix = move.old_key + "/";
    const std::string new_prefix = move.new_key + "/";
    const Result<std::vector<ObjectInfo>> sources = list_all(state_.env.store, old_prefix);
    if (!sources) {
        return failure(sources.error());
    }
    const auto copied = copy_tree(state_.env.store, *sources, old_prefix, new_prefix);
    if (!copied) {
        return failure(copied.error());
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        std::vector<std::pair<NodePtr, std::string>> files;
        for (const NodePtr& node : state_.nodes.files_below(lock, move.node)) {
            files.emplace_back(node, state_.key(lock, *node));
        }
        state_.nodes.move(lock, move.node, move.new_parent, move.new_name);
        for (const auto& [node, old_key] : files) {
            const auto copy = copied->find(old_key);
            if (copy != copied->end()) {
                note_moved_file(lock, *node, copy->second);
            }
        }
    }
    std::vector<std::string> keys;
    for (const ObjectInfo& source : *sources) {
        keys.push_back(source.key);
    }
    return remove_all(state_.env.store, keys);
}

Status Renames::commit_writers_below(const NodePtr& directory) {
    std::vector<std::pair<NodePtr, std::shared_ptr<FileWriter>>> writing;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.files_below(lock, directory)) {
            if (node->writer != nullptr) {
                writing.emplace_back(node, node->writer);
            }
        }
    }
    return for_each_in_parallel(writing.size(), writing.size(),
                                [&](std::size_t index, std::function<void(Status)> done) {
                                    const auto& [node, writer] = writing[index];
                                    open_files_.commit(node, writer, CommitReason::kRename, std::move(done));
                                });
}

}  // namespace ckptfs
