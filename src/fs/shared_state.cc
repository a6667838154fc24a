// SPDX-License-Identifier: Apache-2.0
#include "fs/shared_state.h"

namespace ckptfs {

Attributes SharedState::attributes(const NodeTable::Lock&, const Node& node) const {
    Attributes attributes;
    attributes.inode = node.inode;
    attributes.type = node.type;
    attributes.uid = env.names.uid;
    attributes.gid = env.names.gid;
    attributes.valid_for = env.names.metadata_ttl;
    if (node.type == FileType::kDirectory) {
        attributes.mode = env.names.dir_mode;
        attributes.modified = mounted;
        return attributes;
    }
    attributes.mode = env.names.file_mode;
    if (node.writer != nullptr) {
        attributes.size = node.writer->size();
        attributes.modified = node.written;
        // It grows while it is written.
        attributes.valid_for = Milliseconds(0);
    } else if (node.committed) {
        attributes.size = node.committed->size;
        attributes.modified = node.committed->modified;
    }
    return attributes;
}

Entry SharedState::entry(const NodeTable::Lock& lock, Node& node) const {
    ++node.lookups;
    return Entry{node.id, attributes(lock, node), env.names.metadata_ttl};
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

}  // namespace ckptfs
