// SPDX-License-Identifier: Apache-2.0
#include "fs/renames/renames.h"

#include <linux/fs.h>

#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/moves/directory_rename.h"
#include "fs/objects/pinned_removal.h"
#include "fs/state/ordered_change.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

void Renames::rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                     StillCounts counts, Reply<void> reply) {
    Request request{parent, std::move(name), new_parent, std::move(new_name), flags, {}, std::move(counts)};
    // Before it waits for its turn.
    request.may_be_taken = lookups_.may_be_taken(new_parent, request.new_name);
    answer_in_order<void>(state_, {{parent, request.name}, {new_parent, request.new_name}}, std::move(reply),
                          [this, request] { return rename_now(request); });
}

Status Renames::rename_now(const Request& request) {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    Result<Move> move = resolve(request.parent, request.name, request.new_parent, request.new_name);
    if (!move) {
        return failure(move.error());
    }
    move->no_replace = (request.flags & RENAME_NOREPLACE) != 0;
    move->counts = request.counts;
    if (move->old_key == move->new_key) {
        return {};
    }
    const bool is_directory = move->node->type == FileType::kDirectory;
    if (const Status possible = is_directory ? Status{} : request.may_be_taken; !possible) {
        return possible;
    }
    if (const Status possible = check_target(*move); !possible) {
        return possible;
    }
    const Status renamed = is_directory ? rename_directory(*move) : rename_file(*move);
    // Also where it failed: it may have been half done.
    forget_listed(*move);
    if (!renamed) {
        return renamed;
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        move->node->checked = state_.env.clock.now();
        state_.note_names_changed(lock, *move->old_parent);
        state_.note_names_changed(lock, *move->new_parent);
    }
    if (!is_directory) {
        end_overtaken(*move);
    }
    directories_.keep_when_empty(move->old_parent);
    return {};
}

void Renames::forget_listed(const Move& move) {
    if (move.node->type == FileType::kDirectory) {
        const NodeTable::Lock lock = state_.nodes.lock();
        lookups_.forget_listed_below(lock, *move.node);
        return;
    }
    lookups_.forget_listed(move.old_parent->id, move.old_name);
    lookups_.forget_listed(move.new_parent->id, move.new_name);
}

Result<Renames::Move> Renames::resolve(NodeId parent, const std::string& name, NodeId new_parent,
                                       const std::string& new_name) {
    const Result<Entry> source = wait_for<Entry>([&](auto done) { lookups_.lookup(parent, name, 0, done); });
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
    move.old_name = name;
    move.new_parent = *to;
    move.new_name = new_name;
    const std::string new_path = state_.nodes.path(lock, **to);
    const auto check = move.node->type == FileType::kDirectory ? check_new_directory_name : check_new_name;
    if (const Status valid = check(state_.env.prefix, new_path, new_name); !valid) {
        return failure(valid.error());
    }
    if (move.node == *to || state_.nodes.is_below(lock, **to, *move.node)) {
        return failure(EINVAL, "a directory cannot be moved into itself");
    }
    move.old_key = state_.key(lock, **from) + name;
    move.new_key = state_.env.prefix + new_path + new_name;
    return move;
}

// The kernel has just looked the target up and refuses a file over a directory and the reverse by itself, and what that
// lookup found hidden is refused to a file before; the bucket is asked only where that is not enough.
Status Renames::check_target(Move& move) {
    const bool is_directory = move.node->type == FileType::kDirectory;
    if (!move.no_replace && !is_directory) {
        return {};
    }
    const Result<FoundName> target = wait_for<FoundName>([&](auto done) { lookups_.find(move.new_key, done); });
    if (!target) {
        return failure(target.error());
    }
    if (target->is_hidden) {
        return failure(EBUSY, move.new_key + ": a rename of this directory is not finished");
    }
    if (move.no_replace && (target->object || target->is_directory)) {
        return failure(EEXIST, move.new_key + " exists");
    }
    if (!is_directory) {
        return {};
    }
    if (target->object && !target->is_directory) {
        // Saved by another mount since the kernel looked: the directory would hide it.
        return failure(ENOTDIR, move.new_key + " is a file");
    }
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr there = state_.nodes.child(lock, move.new_parent, move.new_name);
        // What the bucket does not show yet would be published over what is renamed.
        if (there != nullptr && (NodeTable::holds_special(lock, *there) || NodeTable::holds_writer(lock, *there))) {
            return failure(ENOTEMPTY, move.new_key + " is not empty");
        }
    }
    return target->is_directory ? check_is_empty(move) : Status{};
}

Status Renames::check_is_empty(Move& move) {
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
        if (lookups_.hides(object)) {
            // Hidden since it was looked up: the marker that hides the directory would be written over.
            return failure(EBUSY, move.new_key + ": a rename of this directory is not finished");
        }
        move.replaced_marker = object.etag;
    }
    return {};
}

// --- files

Status Renames::rename_file(const Move& move) {
    Result<bool> done = publish_under_new_name(move);
    if (done && !*done) {
        done = remove_if_left_over(move);
    }
    if (!done || *done) {
        return done ? Status{} : failure(done.error());
    }
    const std::optional<ObjectVersion> before = committed_version(*move.node);
    CopyOptions options{move.no_replace, move.counts};
    if (before && !before->etag.empty()) {
        options.known.emplace();
        options.known->key = move.old_key;
        options.known->etag = before->etag;
        options.known->size = before->stored_size;
        options.known->last_modified = before->modified;
    }
    options.files = state_.env.read.files;
    const Result<Copied> copied = gate_.copy(move.old_key, move.new_key, options);
    if (!copied) {
        return failure(copied.error());
    }
    state_.leftovers.forget(move.new_key);
    note_new_place(move.node, move.new_parent, move.new_name, *copied);
    Status removed = remove_version(state_.env.store, {move.old_key, copied->source_etag});
    if (removed) {
        // Until now the bucket had both.
        const NodeTable::Lock lock = state_.nodes.lock();
        state_.nodes.note_removal(lock, *move.old_parent, move.old_name);
        return {};
    }
    if (before && before->etag == copied->source_etag) {
        // Else the old name, which the kernel goes on showing, and the copy look like one file, and renaming the one to
        // the other again does nothing.
        note_new_place(move.node, move.old_parent, move.old_name, Copied{copied->copy.etag, *before});
    }
    {
        // The request may have been carried out all the same.
        const NodeTable::Lock lock = state_.nodes.lock();
        move.node->checked = SteadyTime{};
    }
    return failure(removed.error().errno_value,
                   format("{} was copied to {} but cannot be deleted, so both exist: {}", escaped(move.old_key),
                          escaped(move.new_key), removed.error().message));
}

std::optional<ObjectVersion> Renames::committed_version(const Node& node) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    return node.committed;
}

std::string Renames::etag_under_name(const Node& node) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    if (node.committed_beside != nullptr) {
        return *node.committed_beside;
    }
    return node.committed ? node.committed->etag : "";
}

void Renames::note_new_place(const NodePtr& node, const NodePtr& parent, const std::string& name,
                             const Copied& copied) {
    std::function<void()> tell_writer;
    std::vector<std::shared_ptr<FileWriter>> replaced;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        replaced = take_name(lock, node, parent, name);
        tell_writer = note_moved_file(lock, node, copied);
    }
    tell_writer();
    for (const std::shared_ptr<FileWriter>& writer : replaced) {
        FileFailures::orphan(writer);
    }
}

std::vector<std::shared_ptr<FileWriter>> Renames::take_name(const NodeTable::Lock& lock, const NodePtr& node,
                                                            const NodePtr& parent, const std::string& name) {
    std::vector<std::shared_ptr<FileWriter>> replaced;
    std::vector<ExpectedOpen> expected;
    if (const NodePtr old = state_.nodes.child(lock, parent, name); old != node) {
        // Opens that come back for the name find this node.
        expected = old != nullptr ? std::exchange(old->expected, {}) : expected;
        replaced = state_.nodes.remove(lock, parent, name);
    }
    state_.nodes.move(lock, node, parent, name);
    for (const ExpectedOpen& each : expected) {
        state_.nodes.expect(lock, *node, each);
    }
    return replaced;
}

void Renames::end_overtaken(const Move& move) {
    std::vector<NodePtr> overtaken;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        overtaken = state_.nodes.overtaken(lock, move.old_parent, move.old_name);
    }
    failures_.end_versions(overtaken);
}

Result<bool> Renames::publish_under_new_name(const Move& move) {
    std::shared_ptr<FileWriter> writer;
    std::shared_ptr<WrittenVersion> version;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        writer = move.node->writer;
        version = move.node->version;
    }
    if (writer == nullptr) {
        return false;
    }
    if (!version->renames.begin()) {
        return failure(writer->failed().value_or(lost_error(*writer)));
    }
    Result<bool> published = publish_under_new_name(move, writer, version);
    version->renames.end();
    return published;
}

Result<bool> Renames::publish_under_new_name(const Move& move, const std::shared_ptr<FileWriter>& writer,
                                             const std::shared_ptr<WrittenVersion>& version) {
    if (const std::optional<Error> failed = writer->failed()) {
        return failure(*failed);
    }
    if (version->fate.left_by_killed_writer() || commits_.is_left_half(*move.node, *version)) {
        return failure(lost_error(*writer));
    }
    const std::string in_bucket = etag_under_name(*move.node);
    if (!writer->dirty()) {
        return false;
    }
    // If nothing may be replaced, the copy that follows checks once more.
    const bool moved = !move.no_replace && writer->move_to(move.new_key);
    // Else a commit marker appears under the old name for a moment. Other files being written beside it are not
    // committed first: committing them may wait for this rename.
    const bool shows_marker = !moved && gate_.is_marker(move.old_key);
    const Result<StillCounts> counts = shows_marker ? gate_.allow(directory_of(move.old_key), {move.old_key})
                                       : moved      ? move.counts
                                                    : StillCounts();
    if (!counts) {
        return failure(counts.error());
    }
    if (!moved && commits_.is_left_half(*move.node, *version)) {
        // Since the gate was asked.
        return failure(lost_error(*writer));
    }
    if (const Status committed = commit_writer(move.node, writer, *counts); !committed) {
        return failure(committed.error());
    }
    if (!moved) {
        return false;
    }
    std::vector<std::shared_ptr<FileWriter>> replaced;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        replaced = take_name(lock, move.node, move.new_parent, move.new_name);
    }
    for (const std::shared_ptr<FileWriter>& other : replaced) {
        FileFailures::orphan(other);
    }
    if (in_bucket.empty()) {
        return true;
    }
    const std::optional<ObjectVersion> now = committed_version(*move.node);
    const Status removed = remove_leftover(move, {in_bucket, move.new_key, now ? now->etag : std::string(), version});
    return removed ? Result<bool>(true) : failure(removed.error());
}

Result<bool> Renames::remove_if_left_over(const Move& move) {
    const std::optional<ObjectVersion> known = committed_version(*move.node);
    const auto left = known ? state_.leftovers.find(move.old_key, known->etag, move.new_key) : std::nullopt;
    if (!left) {
        return false;
    }
    const Result<std::optional<std::string>> there = current_etag(state_.env.store, move.new_key);
    if (!there) {
        return failure(there.error());
    }
    if (!*there || **there != left->published) {
        state_.leftovers.forget(move.old_key);
        return false;
    }
    const Status removed = remove_leftover(move, *left);
    return removed ? Result<bool>(true) : failure(removed.error());
}

Status Renames::remove_leftover(const Move& move, const LeftoverName& left) {
    Status removed = remove_version(state_.env.store, {move.old_key, left.etag});
    state_.leftovers.forget(move.old_key);
    if (!removed) {
        state_.leftovers.add(move.old_key, left);
    }
    if (removed) {
        // To the kernel the target is what was removed, until it looks again.
        const NodeTable::Lock lock = state_.nodes.lock();
        if (const NodePtr node = state_.nodes.child(lock, move.old_parent, move.old_name)) {
            state_.nodes.unlink(lock, node);
        }
    }
    return removed;
}

Status Renames::commit_writer(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                              const StillCounts& counts) {
    return wait_for<void>([&](auto done) { start_commit(node, writer, counts, done); });
}

void Renames::start_commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const StillCounts& counts,
                           std::function<void(Status)> done) {
    auto committed = std::make_shared<Status>();
    commits_.commit(
        node, writer, CommitReason::kRename, {counts, nullptr},
        [committed](Status status) {
            if (!status) {
                *committed = std::move(status);
            }
        },
        [committed, done = std::move(done)] { done(*committed); });
}

std::function<void()> Renames::note_moved_file(const NodeTable::Lock& lock, const NodePtr& moved,
                                               const Copied& copied) {
    Node& node = *moved;
    if (!node.committed || node.committed->etag != copied.source_etag) {
        return note_replaced_file(lock, moved);
    }
    ObjectVersion version = copied.copy;
    node.checked = state_.env.clock.now();
    version.type = node.type;
    if (node.committed->stored_size == version.stored_size) {
        version.size = node.committed->size;
        state_.contents.remember(state_.key(lock, node), version.etag, {node.type, version.size});
    } else if (state_.env.codec.may_be_encoded(version.stored_size)) {
        // The next lookup asks for its size.
        node.checked = SteadyTime{};
    }
    for (const NodePtr& reader : state_.nodes.earlier_of(lock, node)) {
        if (reader->committed && reader->committed->etag == copied.source_etag) {
            const NodePtr old_parent = std::exchange(reader->parent, node.parent);
            state_.nodes.drop_if_unused(lock, old_parent);
            reader->name = node.name;
            reader->has_moved = true;
            note_copy(lock, *reader, version);
        }
    }
    note_copy(lock, node, version);
    if (node.writer == nullptr) {
        return [] {};
    }
    return [writer = node.writer, key = state_.key(lock, node),
            copy = CommittedObject{version.etag, version.stored_size, version.size, version.modified}] {
        writer->committed_moved(key, copy);
    };
}

// The bytes are the same, and so are the pages the kernel has of them.
void Renames::note_copy(const NodeTable::Lock& /*lock*/, Node& node, const ObjectVersion& copy) {
    if (node.pages_etag == node.committed->etag) {
        node.pages_etag = copy.etag;
    }
    node.committed = copy;
    node.reader = nullptr;
}

// The file was replaced by another mount, so that the name holds another version than the node: the next open looks it
// up again.
std::function<void()> Renames::note_replaced_file(const NodeTable::Lock& lock, const NodePtr& node) {
    if (node->writer != nullptr) {
        return note_moved_writer(lock, node, "another mount had replaced it when it was renamed");
    }
    state_.nodes.unlink(lock, node);
    return [] {};
}

// If all of it was saved, another mount has removed or replaced that: no name here leads to it, and no marker waits for
// it.
std::function<void()> Renames::note_moved_writer(const NodeTable::Lock& lock, const NodePtr& node,
                                                 std::string_view what) {
    const bool is_saved = node->committed && !node->writer->dirty() && !node->writer->failed();
    std::string key = state_.key(lock, *node);
    if (is_saved) {
        state_.nodes.unlink(lock, node);
    }
    return [writer = node->writer, version = node->version, key = std::move(key), what, is_saved] {
        const std::string old_key = writer->key();
        if (writer->failed() || writer->move_on_to(key)) {
            return;
        }
        Error why;
        why.message = format("{}: {}; write the file anew", escaped(old_key), what);
        log_warning(why.message);
        if (is_saved) {
            writer->when_failed(nullptr);
        } else {
            version->stayed_behind = true;
        }
        writer->abort(std::move(why), [](const Status&) {});
    };
}

}  // namespace ckptfs::fs
