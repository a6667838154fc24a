// SPDX-License-Identifier: Apache-2.0
#include "fs/state/shared_state.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/globs.h"
#include "ckptfs/bucket_layout.h"

namespace ckptfs::fs {

// A writer that only writes a new file, or only appends, is assumed to write in order; one that may read, or changes
// what is there, may write anywhere in the file.
std::shared_ptr<FileWriter> SharedState::make_writer(const std::string& key, int flags,
                                                     std::optional<CommittedObject> base) const {
    const Overwrite overwrite = (flags & O_EXCL) != 0 && !base ? Overwrite::kRefused : Overwrite::kAllowed;
    const bool asked_for = matches_any(key.substr(key.rfind('/') + 1), env.write.config.stage);
    const bool reads = (flags & O_ACCMODE) == O_RDWR;
    const bool changes = base && base->size > 0 && (flags & O_APPEND) == 0;
    if (!asked_for && !reads && !changes && publishes_growth(key, flags)) {
        return make_growing_file(env.write, key, std::move(base), overwrite);
    }
    if (!asked_for && !reads && !changes) {
        return FileWriter::create(env.write, key, std::move(base), overwrite);
    }
    const StagedEnvironment environment{env.write, env.read, HiddenPlace{env.prefix, mount_id}};
    return make_staged_file(environment, key, std::move(base), asked_for ? Streaming::kNever : Streaming::kWhileInOrder,
                            overwrite);
}

bool SharedState::publishes_growth(const std::string& key, int flags) const {
    const WriteConfig& config = env.write.config;
    return config.publish_interval != Milliseconds(0) &&
           ((flags & O_APPEND) != 0 || matches_any(key.substr(key.rfind('/') + 1), config.keep_on_kill));
}

Attributes SharedState::attributes(const NodeTable::Lock&, const Node& node) const {
    Attributes attributes;
    attributes.inode = node.inode;
    attributes.type = node.type;
    attributes.uid = env.names.uid;
    attributes.gid = env.names.gid;
    attributes.valid_for = env.names.metadata_ttl;
    if (node.type == FileType::kDirectory) {
        attributes.mode = env.names.dir_mode;
        attributes.modified = std::max(mounted, node.directory().names_changed);
        return attributes;
    }
    attributes.is_linked = !node.removed;
    if (is_special(node.type)) {
        attributes.mode = node.special->mode;
        attributes.uid = node.special->uid;
        attributes.gid = node.special->gid;
        attributes.modified = node.special->modified;
        return attributes;
    }
    // A symbolic link's mode is unused (symlink(7)).
    attributes.mode = node.type == FileType::kSymlink ? 0777 : env.names.file_mode;
    if (node.writer != nullptr) {
        attributes.size = node.writer->size();
        attributes.modified = node.written;
        // The file grows while it is written.
        attributes.valid_for = Milliseconds(0);
    } else if (node.committed) {
        attributes.size = node.committed->size;
        attributes.modified = node.committed->modified;
    } else if (node.lost_size) {
        attributes.size = *node.lost_size;
        attributes.modified = node.written;
    }
    if (node.shares_inode || node.grown) {
        attributes.valid_for = Milliseconds(0);
    }
    return attributes;
}

Entry SharedState::entry(const NodeTable::Lock& lock, Node& node) const {
    ++node.lookups;
    if (nodes.is_crowded(lock)) {
        for (auto& [parent, name] : nodes.take_unused(lock)) {
            env.kernel_cache.invalidate_entry(parent, std::move(name));
        }
    }
    // By a name that it keeps, the kernel would open the file under the name that it gets.
    const bool is_changing =
        node.parent != nullptr && name_changes.is_under_way(NameInDirectory{node.parent->id, node.name});
    return Entry{node.id, attributes(lock, node), is_changing ? Milliseconds(0) : env.names.metadata_ttl};
}

bool SharedState::waits_for_left_rename(const NodeTable::Lock& lock, const NodePtr& directory,
                                        std::function<void(bool is_elsewhere)> run) {
    for (const Node* above = directory.get(); above->parent != nullptr; above = above->parent.get()) {
        const NameInDirectory name{above->parent->id, above->name};
        if (!name_changes.is_left(name)) {
            continue;
        }
        const auto go_on = [this, directory, run, path = nodes.path(lock, *directory)] {
            bool is_elsewhere = false;
            {
                const NodeTable::Lock now = nodes.lock();
                is_elsewhere = directory->removed || nodes.path(now, *directory) != path;
            }
            run(is_elsewhere);
        };
        if (name_changes.wait(name, go_on)) {
            return true;
        }
    }
    return false;
}

Result<NodePtr> SharedState::directory(const NodeTable::Lock& lock, NodeId id) const {
    NodePtr node = nodes.find(lock, id);
    if (node == nullptr) {
        return failure(ESTALE, "the directory is gone");
    }
    if (node->type != FileType::kDirectory) {
        return failure(ENOTDIR, "not a directory");
    }
    return node;
}

}  // namespace ckptfs::fs
