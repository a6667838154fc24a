// SPDX-License-Identifier: Apache-2.0
#include "fs/names/symlinks.h"

#include <cerrno>
#include <utility>

#include "base/range_fetch.h"
#include "base/store_wait.h"
#include "ckptfs/bucket_layout.h"
#include "fs/objects/symlink_object.h"
#include "fs/state/ordered_change.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

void Symlinks::create(NodeId parent, std::string name, std::string target, StillCounts counts, Reply<Entry> reply) {
    if (const Status allowed = lookups_.may_be_taken(parent, name); !allowed) {
        reply(failure(allowed.error()));
        return;
    }
    answer_in_order<Entry>(
        state_, {{parent, name}}, std::move(reply),
        [this, parent, name, target, counts = std::move(counts)] { return create_now(parent, name, target, counts); });
}

Result<Entry> Symlinks::create_now(NodeId parent_id, const std::string& name, const std::string& target,
                                   const StillCounts& counts) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    if (target.empty()) {
        return failure(ENOENT, "a symbolic link needs a target");
    }
    if (target.size() > kMaxSymlinkTarget) {
        return failure(ENAMETOOLONG, "the target of a symbolic link has at most 4,095 bytes");
    }
    NodePtr parent;
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> found = state_.directory(lock, parent_id);
        if (!found) {
            return failure(found.error());
        }
        parent = *found;
        const std::string parent_path = state_.nodes.path(lock, *parent);
        if (const Status valid = check_new_name(state_.env.prefix, parent_path, name); !valid) {
            return failure(valid.error());
        }
        const NodePtr there = state_.nodes.child(lock, parent, name);
        if (there != nullptr && (there->is_known_here() || state_.is_fresh(lock, *there))) {
            return failure(EEXIST, name + " exists");
        }
        key = state_.env.prefix + parent_path + name;
    }
    // Sent again, it is known by its write ID.
    const PutRequest object = symlink_object(key, target);
    const Result<PutResponse> made = gate_.publish<PutResponse>(key, counts, [&](StillCounts still_counts) {
        PutRequest request = object;
        request.may_send = std::move(still_counts);
        return wait_for<PutResponse>([&](auto done) { state_.env.store.put(std::move(request), done); });
    });
    if (!made) {
        return failure(made.error());
    }
    ObjectVersion version;
    version.type = FileType::kSymlink;
    version.etag = made->etag;
    version.size = target.size();
    version.stored_size = next_marked_size(version.size);
    version.modified = made->last_modified;
    state_.contents.remember(key, made->etag, {version.type, version.size});
    const NodeTable::Lock lock = state_.nodes.lock();
    lookups_.forget_listed(parent->id, name);
    const NodePtr node = lookups_.found_file(lock, parent, name, version, state_.env.clock.now());
    node->symlink_target = std::make_unique<const std::string>(target);
    state_.note_names_changed(lock, *parent);
    return state_.entry(lock, *node);
}

void Symlinks::read(NodeId id, Reply<std::string> reply) {
    Result<std::string> target = failure(EINVAL, "not a symbolic link");
    std::string key;
    ObjectVersion version;
    NodePtr node;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node = state_.nodes.find(lock, id);
        if (node == nullptr) {
            target = failure(ESTALE, "the symbolic link is gone");
        } else if (node->type == FileType::kSymlink) {
            target = node->symlink_target != nullptr ? *node->symlink_target : "";
            version = *node->committed;
            key = state_.key(lock, *node);
        }
    }
    if (!target || !target->empty()) {
        reply(std::move(target));
        return;
    }
    fetch_range(state_.env.store, key, version.etag, ByteRange{0, version.stored_size},
                [this, node, reply = std::move(reply)](Result<FetchedRange> fetched) {
                    if (!fetched) {
                        // Removed behind the kernel's back: it is to look the name up again.
                        const bool gone = fetched.error().errno_value == ENOENT;
                        reply(gone ? failure(ESTALE, fetched.error().message) : failure(std::move(fetched.error())));
                        return;
                    }
                    Result<std::string> read = symlink_target(fetched->object, fetched->bytes);
                    if (read) {
                        const NodeTable::Lock lock = state_.nodes.lock();
                        node->symlink_target = std::make_unique<const std::string>(*read);
                    }
                    reply(std::move(read));
                });
}

}  // namespace ckptfs::fs
