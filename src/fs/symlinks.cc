// SPDX-License-Identifier: Apache-2.0
#include "fs/symlinks.h"

#include <cerrno>
#include <utility>

#include "base/range_fetch.h"
#include "ckptfs/format.h"
#include "fs/paths.h"
#include "fs/symlink_object.h"

namespace ckptfs {

void Symlinks::create(NodeId parent, std::string name, std::string target, Reply<Entry> reply) {
    auto request = std::make_shared<Request>();
    request->name = std::move(name);
    request->target = std::move(target);
    request->reply = std::move(reply);
    if (const Status begun = begin(*request, parent); !begun) {
        request->reply(failure(begun.error()));
        return;
    }
    state_.key_order.when_first(request->place, [this, request] { put(request); });
}

Status Symlinks::begin(Request& request, NodeId parent_id) {
    if (state_.env.names.read_only) {
        return failure(EROFS, "mounted read-only");
    }
    if (request.target.empty()) {
        return failure(ENOENT, "a symbolic link needs a target");
    }
    if (request.target.size() > kMaxSymlinkTarget) {
        return failure(ENAMETOOLONG, "the target of a symbolic link has at most 4,095 bytes");
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> parent = state_.directory(lock, parent_id);
    if (!parent) {
        return failure(parent.error());
    }
    request.parent = *parent;
    const std::string parent_path = state_.nodes.path(lock, **parent);
    if (const Status valid = check_new_name(state_.env.prefix, parent_path, request.name); !valid) {
        return valid;
    }
    const NodePtr there = state_.nodes.child(lock, *parent, request.name);
    if (there != nullptr && (there->writer != nullptr || state_.is_fresh(lock, *there))) {
        return failure(EEXIST, request.name + " exists");
    }
    request.key = state_.env.prefix + parent_path + request.name;
    request.place = state_.key_order.enter({request.key});
    return {};
}

void Symlinks::put(const std::shared_ptr<Request>& request) {
    state_.env.store.put(symlink_object(request->key, request->target), [this, request](Result<PutResponse> made) {
        Result<Entry> entry = failure(EIO, "not made");
        if (made) {
            entry = note(*request, *made);
        } else {
            entry = failure(std::move(made.error()));
        }
        state_.key_order.leave(request->place);
        request->reply(std::move(entry));
    });
}

Entry Symlinks::note(const Request& request, const PutResponse& made) {
    ObjectVersion version;
    version.type = FileType::kSymlink;
    version.etag = made.etag;
    version.size = request.target.size();
    version.stored_size = next_marked_size(version.size);
    version.modified = made.last_modified;
    state_.contents.remember(request.key, made.etag, {version.type, version.size});
    const NodeTable::Lock lock = state_.nodes.lock();
    const NodePtr node = lookups_.found_file(lock, request.parent, request.name, version);
    node->symlink_target = request.target;
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
            target = node->symlink_target;
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
                        node->symlink_target = *read;
                    }
                    reply(std::move(read));
                });
}

}  // namespace ckptfs
