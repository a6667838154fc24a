// SPDX-License-Identifier: Apache-2.0
#include "fs/names/directories.h"

#include <utility>

#include "base/store_wait.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "fs/names/directory_listing.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/pinned_removal.h"
#include "fs/state/ordered_change.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

Directories::Directories(SharedState& state, Lookups& lookups, RenameRepairs& repairs, UnlinkBatches& batches)
    : state_(state), lookups_(lookups), batches_(batches), records_(state, repairs) {
    batches_.on_deleted([this](const NodePtr& directory) { keep_when_empty(directory); });
}
Directories::~Directories() = default;

void Directories::mkdir(NodeId parent, std::string name, Reply<Entry> reply) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> directory = state_.directory(lock, parent);
        if (directory && state_.waits_for_left_rename(lock, *directory, [=, this](bool is_elsewhere) {
                is_elsewhere ? reply(failure(ESTALE, name + ": its directory was renamed"))
                             : mkdir(parent, name, reply);
            })) {
            return;
        }
    }
    // Its caller may be killed, and another process make a file of the name, which would be hidden.
    answer_in_order<Entry>(state_, {{parent, name}}, begin_change(state_, {{parent, name}}, std::move(reply)),
                           [this, parent, name] { return mkdir_now(parent, name); });
}

Result<Entry> Directories::mkdir_now(NodeId parent_id, const std::string& name) {
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> parent = state_.directory(lock, parent_id);
        if (!parent) {
            return failure(parent.error());
        }
        if (Status changes = state_.takes_changes(); !changes) {
            return failure(std::move(changes.error()));
        }
        const std::string parent_path = state_.nodes.path(lock, **parent);
        if (const Status valid = check_new_directory_name(state_.env.prefix, parent_path, name); !valid) {
            return failure(valid.error());
        }
        if (const NodePtr there = state_.nodes.child(lock, *parent, name);
            there != nullptr && is_special(there->type)) {
            return failure(EEXIST, name + " exists");
        }
        key = state_.env.prefix + parent_path + name + "/";
    }
    if (const Status made = put_marker(key); !made) {
        const bool exists = made.error().errno_value == EEXIST;
        return exists && is_hidden(key) ? failure(EBUSY, key + ": a rename of this directory is not finished")
                                        : failure(made.error());
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    const Result<NodePtr> parent = state_.directory(lock, parent_id);
    if (!parent) {
        return failure(parent.error());
    }
    lookups_.forget_listed(parent_id, name);
    const NodePtr node = lookups_.found_directory(lock, *parent, name, true, state_.env.clock.now());
    state_.note_names_changed(lock, **parent);
    state_.note_names_changed(lock, *node);
    return state_.entry(lock, *node);
}

bool Directories::is_hidden(const std::string& key) {
    const Result<FoundName> found =
        wait_for<FoundName>([&](auto done) { lookups_.find(key.substr(0, key.size() - 1), done); });
    return found && found->is_hidden;
}

Status Directories::put_marker(const std::string& key, std::optional<WallTime> made) {
    PutRequest request;
    request.key = key;
    request.content_type = "application/x-directory";
    // Lets mkdir recognise its own marker when the reply was lost.
    request.metadata[kWriteIdMetadata] = random_uuid();
    if (made) {
        request.metadata[kMadeMetadata] = made_text(*made);
    }
    request.if_none_match = true;
    const Result<PutResponse> written = wait_for<PutResponse>([&](auto done) { state_.env.store.put(request, done); });
    return written ? Status{} : failure(written.error());
}

void Directories::rmdir(NodeId parent, std::string name, Orphan orphan, const PlaceTaken& taken, Reply<void> reply) {
    NodePtr parent_node;
    NodeId id = 0;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        parent_node = state_.nodes.find(lock, parent);
        if (parent_node != nullptr) {
            const NodePtr directory = state_.nodes.child(lock, parent_node, name);
            id = directory == nullptr ? 0 : directory->id;
        }
    }
    if (parent_node == nullptr) {
        taken();
        reply(failure(ESTALE, "the directory is gone"));
        return;
    }
    // Directories count in a run of removals, too.
    static_cast<void>(batches_.removal_begins(parent_node));
    batches_.when_settled(id, [=, this, orphan = std::move(orphan), reply = std::move(reply)] {
        if (std::optional<Error> failed = batches_.take_failure(id)) {
            taken();
            reply(failure(std::move(*failed)));
            return;
        }
        answer_in_order<void>(state_, {{parent, name}}, reply, [this, parent, parent_node, name, orphan] {
            Status removed = rmdir_now(parent, name, orphan);
            batches_.removal_ends(parent_node);
            return removed;
        });
        taken();
    });
}

Status Directories::rmdir_now(NodeId parent_id, const std::string& name, const Orphan& orphan) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    ListRequest list;
    NodePtr parent_node;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> parent = state_.directory(lock, parent_id);
        if (!parent) {
            return failure(parent.error());
        }
        parent_node = *parent;
        if (const NodePtr node = state_.nodes.child(lock, parent_node, name)) {
            if (node->type != FileType::kDirectory) {
                return failure(ENOTDIR, name + ": not a directory");
            }
            for (const auto& [child_name, child] : node->directory().children) {
                if (child->type != FileType::kDirectory && child->has_its_name_here()) {
                    return failure(ENOTEMPTY, child_name + " is below the directory " + name);
                }
            }
        }
        list.prefix = state_.key(lock, *parent_node) + name + "/";
    }
    list.max_keys = 2;
    const Result<ListResponse> below = wait_for<ListResponse>([&](auto done) { state_.env.store.list(list, done); });
    if (!below) {
        return failure(below.error());
    }
    std::string marker;
    for (const ObjectInfo& object : below->objects) {
        if (object.key == list.prefix && lookups_.hides(object)) {
            return failure(ENOENT, list.prefix + " is being renamed");
        }
        marker = object.etag;
        if (object.key != list.prefix) {
            return failure(ENOTEMPTY, "the directory holds " + escaped(object.key));
        }
    }
    if (!marker.empty()) {
        if (const Status removed = remove_version(state_.env.store, {list.prefix, marker}); !removed) {
            return removed;
        }
    }
    for (const std::shared_ptr<FileWriter>& writer : note_removed(parent_node, name)) {
        orphan(writer);
    }
    keep_when_empty(parent_node);
    return {};
}

std::vector<std::shared_ptr<FileWriter>> Directories::note_removed(const NodePtr& parent, const std::string& name) {
    std::vector<std::shared_ptr<FileWriter>> writers;
    const NodeTable::Lock lock = state_.nodes.lock();
    if (const NodePtr directory = state_.nodes.child(lock, parent, name)) {
        for (const NodePtr& node : state_.nodes.objects_below(lock, directory)) {
            // The file is saved and still open here; another mount has removed it.
            if (node->writer != nullptr && !node->has_its_name_here()) {
                state_.nodes.unlink(lock, node);
            }
        }
        for (const NodePtr& node : state_.nodes.overtaken(lock)) {
            if (state_.nodes.is_below(lock, *node, *directory)) {
                node->removed = true;
                writers.push_back(node->writer);
            }
        }
    }
    lookups_.found_nothing(lock, parent, name);
    state_.note_names_changed(lock, *parent);
    return writers;
}

void Directories::unlink(NodeId parent_id, std::string name, Orphan orphan, const PlaceTaken& taken,
                         Reply<void> reply) {
    if (const Status changes = state_.takes_changes(); !changes) {
        taken();
        reply(changes);
        return;
    }
    Result<NodePtr> parent = failure(ESTALE, "the directory is gone");
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        parent = state_.directory(lock, parent_id);
    }
    if (!parent) {
        taken();
        reply(failure(std::move(parent.error())));
    } else if (std::optional<Error> failed = batches_.take_failure(parent_id)) {
        taken();
        reply(failure(std::move(*failed)));
    } else if (!batches_.removal_begins(*parent) || !unlink_in_batch(*parent, name, orphan, taken, reply)) {
        const bool has_a_turn = state_.name_changes.others({parent_id, name});
        has_a_turn ? unlink_in_turn(*parent, std::move(name), std::move(orphan), taken, std::move(reply))
                   : unlink_alone(*parent, std::move(name), std::move(orphan), taken, std::move(reply));
    }
}

bool Directories::unlink_in_batch(const NodePtr& parent, const std::string& name, const Orphan& orphan,
                                  const PlaceTaken& taken, const Reply<void>& reply) {
    std::string etag;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr node = state_.nodes.child(lock, parent, name);
        // Without an ETag the removal could not be pinned to a version.
        if (node == nullptr || node->writer != nullptr || !node->committed || node->committed->etag.empty() ||
            !state_.nodes.overtaken(lock, parent, name).empty()) {
            return false;
        }
        etag = node->committed->etag;
    }
    const UnlinkBatches::Added added = batches_.add(parent, name, etag);
    if (added == UnlinkBatches::Added::kFull) {
        batches_.when_settled(parent->id, [=, this] { unlink(parent->id, name, orphan, taken, reply); });
        return true;
    }
    if (added == UnlinkBatches::Added::kNo) {
        return false;
    }
    for (const std::shared_ptr<FileWriter>& writer : note_unlinked(parent, name)) {
        // The file was opened meanwhile.
        state_.env.blocking.post([orphan, writer] { orphan(writer); });
    }
    batches_.removal_ends(parent);
    taken();
    reply({});
    return true;
}

void Directories::unlink_alone(const NodePtr& parent, std::string name, Orphan orphan, const PlaceTaken& taken,
                               Reply<void> reply) {
    auto unlink = std::make_shared<Unlink>();
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        unlink->parent = parent;
        unlink->place = state_.key_order.enter({state_.key(lock, *parent) + name});
    }
    unlink->name = std::move(name);
    unlink->orphan = std::move(orphan);
    unlink->reply = std::move(reply);
    // A commit under way may be large: it is given up before it is waited for.
    const bool alone = state_.key_order.is_first(unlink->place);
    state_.env.blocking.post([this, unlink, alone] {
        const Status removed = unlink_now(*unlink);
        if (!removed || alone) {
            end_unlink(*unlink, removed);
            return;
        }
        // A second removal, of what the change before has left, or what a rename has given the name.
        state_.key_order.when_first(unlink->place, [this, unlink] {
            state_.env.blocking.post([this, unlink] { end_unlink(*unlink, unlink_now(*unlink)); });
        });
    });
    taken();
}

void Directories::unlink_in_turn(const NodePtr& parent, std::string name, Orphan orphan, const PlaceTaken& taken,
                                 Reply<void> reply) {
    Unlink unlink;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        unlink.last_removal = state_.nodes.last_removal(lock);
    }
    unlink.parent = parent;
    unlink.name = std::move(name);
    unlink.orphan = std::move(orphan);
    const NameInDirectory named{parent->id, unlink.name};
    answer_in_order<void>(state_, {named}, std::move(reply), [this, unlink = std::move(unlink)] {
        Status removed =
            is_gone(unlink) ? failure(ENOENT, unlink.name + ": removed or renamed before") : unlink_now(unlink);
        end_removal(unlink, removed);
        return removed;
    });
    taken();
}

// Whether this is the second of two removals of the name, which fails as on a local disk. What another mount has made
// there since is removed.
bool Directories::is_gone(const Unlink& unlink) {
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (state_.nodes.child(lock, unlink.parent, unlink.name) != nullptr ||
            !NodeTable::was_removed_since(lock, *unlink.parent, unlink.name, unlink.last_removal, false)) {
            return false;
        }
        key = state_.key(lock, *unlink.parent) + unlink.name;
    }
    const Result<std::optional<std::string>> there = current_etag(state_.env.store, key);
    return there && !*there;
}

Status Directories::unlink_now(const Unlink& unlink) {
    std::string key;
    std::string known;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        key = state_.key(lock, *unlink.parent) + unlink.name;
        const NodePtr node = state_.nodes.child(lock, unlink.parent, unlink.name);
        known = node != nullptr && node->committed ? node->committed->etag : "";
    }
    if (const Status removed = remove_current(state_.env.store, state_.env.clock, key, known); !removed) {
        return removed;
    }
    for (const std::shared_ptr<FileWriter>& writer : note_unlinked(unlink.parent, unlink.name)) {
        unlink.orphan(writer);
    }
    return {};
}

std::vector<std::shared_ptr<FileWriter>> Directories::note_unlinked(const NodePtr& parent, const std::string& name) {
    lookups_.forget_listed(parent->id, name);
    const NodeTable::Lock lock = state_.nodes.lock();
    state_.note_names_changed(lock, *parent);
    return state_.nodes.remove(lock, parent, name);
}

void Directories::end_removal(const Unlink& unlink, const Status& status) {
    if (status) {
        keep_when_empty(unlink.parent, batches_.is_running(unlink.parent->id));
    }
    batches_.removal_ends(unlink.parent);
}

void Directories::end_unlink(const Unlink& unlink, const Status& status) {
    end_removal(unlink, status);
    state_.key_order.leave(unlink.place);
    unlink.reply(status);
}

void Directories::keep_when_empty(const NodePtr& directory, bool soon) {
    ListRequest list;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (directory->has_marker || directory == state_.nodes.root()) {
            return;
        }
        list.prefix = state_.key(lock, *directory);
    }
    // What the caller asked for is done: a directory that cannot be kept is no reason to report it as failed.
    const auto give_up = [&list](const Error& error) {
        log_warning(escaped("cannot create the marker of the directory " + list.prefix +
                            ", which disappears with its last entry: " + error.message));
    };
    std::string first;
    if (!soon) {
        list.max_keys = 1;
        const Result<ListResponse> below =
            wait_for<ListResponse>([&](auto done) { state_.env.store.list(list, done); });
        if (!below) {
            give_up(below.error());
            return;
        }
        first = below->objects.empty() ? "" : below->objects.front().key;
    }
    if (first.empty()) {
        // The directory was there before, so that what has failed in it still counts.
        if (const Status made = put_marker(list.prefix, WallTime{}); !made && made.error().errno_value != EEXIST) {
            give_up(made.error());
            return;
        }
    } else if (first != list.prefix) {
        return;
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    directory->has_marker = true;
}

void Directories::open(NodeId id, Reply<HandleId> reply) {
    NodePtr node;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Result<NodePtr> directory = state_.directory(lock, id);
        if (directory) {
            node = *directory;
        }
    }
    if (node == nullptr) {
        reply(failure(ESTALE, "the directory is gone"));
        return;
    }
    HandleId handle = 0;
    {
        MutexLock lock(mutex_);
        handle = next_handle_++;
        listings_.emplace(handle, std::make_shared<DirectoryListing>(state_, lookups_, records_, node));
    }
    reply(handle);
}

void Directories::read(HandleId handle, std::uint64_t offset, std::size_t max_entries, bool with_attributes,
                       Reply<std::vector<DirectoryEntry>> reply) {
    std::shared_ptr<DirectoryListing> listing;
    {
        MutexLock lock(mutex_);
        if (const auto found = listings_.find(handle); found != listings_.end()) {
            listing = found->second;
        }
    }
    if (listing == nullptr) {
        reply(failure(EBADF, "not an open directory"));
        return;
    }
    batches_.when_settled(listing->directory(),
                          [this, listing, offset, max_entries, with_attributes, reply = std::move(reply)] {
                              state_.env.blocking.post([listing, offset, max_entries, with_attributes, reply] {
                                  reply(listing->read(offset, max_entries, with_attributes));
                              });
                          });
}

void Directories::release(HandleId handle) {
    std::shared_ptr<DirectoryListing> listing;
    MutexLock lock(mutex_);
    if (const auto found = listings_.find(handle); found != listings_.end()) {
        listing = std::move(found->second);
        listings_.erase(found);
    }
}

}  // namespace ckptfs::fs
