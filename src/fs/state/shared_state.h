// SPDX-License-Identifier: Apache-2.0
// What the parts of the filesystem share: the environment and the node table, and how nodes look from outside. Threads:
// all members are immutable or guard themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>

#include "base/uuid.h"
#include "fs/failures/failed_siblings.h"
#include "fs/file_system.h"
#include "fs/objects/delete_conditions.h"
#include "fs/objects/object_contents.h"
#include "fs/state/key_order.h"
#include "fs/state/leftover_names.h"
#include "fs/state/name_changes.h"
#include "fs/state/nodes.h"
#include "staged/growing_file.h"
#include "staged/staged_file.h"

namespace ckptfs::fs {

struct SharedState {
    explicit SharedState(FileSystemEnvironment environment)
        : env(std::move(environment)),
          contents(env.store, env.codec, env.read.files),
          failed(env.bucket(), env.clock, env.timer,
                 RecordPlace{env.prefix, env.host, env.write.config.failed_sibling_ttl}, env.failure_notes,
                 env.acknowledging),
          deletes(std::make_shared<DeleteConditions>(env.bucket(), env.blocking, env.clock, env.prefix)),
          mounted(env.clock.wall_now()) {}

    FileSystemEnvironment env;
    NodeTable nodes;
    KeyOrder key_order;
    NameChanges name_changes;
    ObjectContents contents;
    FailedSiblings failed;
    LeftoverNames leftovers;
    const std::shared_ptr<DeleteConditions> deletes;
    const WallTime mounted;
    // Identifies this mount in the keys of files that have no name yet.
    const std::string mount_id = random_uuid();
    std::atomic<WrittenVersion::Moment> truncations = 0;
    std::atomic<bool> draining = false;
    // The kernel sends no more requests, and some RELEASE requests may have been lost.
    std::atomic<bool> disconnected = false;

    // EROFS on a read-only mount.
    [[nodiscard]] Status takes_changes() const {
        return env.names.read_only ? failure(EROFS, "mounted read-only") : Status();
    }
    [[nodiscard]] std::string key(const NodeTable::Lock& lock, const Node& node) const REQUIRES(node_table) {
        return env.prefix + nodes.path(lock, node);
    }
    // The writer for a file opened with these flags of open(2); `base` is empty for a new or truncated file.
    [[nodiscard]] std::shared_ptr<FileWriter> make_writer(const std::string& key, int flags,
                                                          std::optional<CommittedObject> base) const;
    // Whether what is written to a file opened with these flags becomes visible while it grows, as far as that is known
    // by now.
    [[nodiscard]] bool publishes_growth(const std::string& key, int flags) const;
    [[nodiscard]] Attributes attributes(const NodeTable::Lock& lock, const Node& node) const REQUIRES(node_table);
    void note_names_changed(const NodeTable::Lock&, Node& directory) const REQUIRES(node_table) {
        // A later time even if the clock was set back.
        WallTime& changed = directory.change_directory().names_changed;
        changed = std::max(env.clock.wall_now(), changed + WallTime::duration(1));
    }
    // Waits for a rename of the directory, or of one above, that goes on without its caller, and then calls `run` with
    // whether the directory has another path. Returns false, without calling it, if there is none.
    [[nodiscard]] bool waits_for_left_rename(const NodeTable::Lock& lock, const NodePtr& directory,
                                             std::function<void(bool is_elsewhere)> run) REQUIRES(node_table);
    // Adds one to the node's lookup count.
    Entry entry(const NodeTable::Lock& lock, Node& node) const REQUIRES(node_table);
    [[nodiscard]] bool is_fresh(const NodeTable::Lock&, const Node& node) const REQUIRES(node_table) {
        return node.checked != SteadyTime{} && env.clock.now() - node.checked < env.names.metadata_ttl;
    }
    // ESTALE for a node the table does not know, ENOTDIR for a file.
    [[nodiscard]] Result<NodePtr> directory(const NodeTable::Lock& lock, NodeId id) const REQUIRES(node_table);
};

[[nodiscard]] inline CommittedObject committed_object(const ObjectVersion& version) {
    return CommittedObject{version.etag, version.stored_size, version.size, version.modified};
}

[[nodiscard]] inline ObjectVersion version_of(const ObjectInfo& info, ObjectContent content) {
    return ObjectVersion{info.etag, content.size, info.size, info.last_modified, content.type};
}

// Compares two versions as the store's answers describe them; some stores' answers carry no ETag.
[[nodiscard]] inline bool is_same_version(const ObjectVersion& one, const ObjectVersion& other) {
    return one.etag == other.etag &&
           (!one.etag.empty() || (one.stored_size == other.stored_size && one.modified == other.modified));
}
// As above, for two versions of the same size.
[[nodiscard]] inline bool is_same_version(const std::string& etag, WallTime modified, const ObjectInfo& other) {
    return etag == other.etag && (!etag.empty() || modified == other.last_modified);
}

}  // namespace ckptfs::fs
