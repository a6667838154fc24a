// SPDX-License-Identifier: Apache-2.0
// What happens on an open handle: reads, writes, and commits. Which close is one is decided in open_files_closing.cc.
#include <fcntl.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "ckptfs/log.h"
#include "fs/all_ended.h"
#include "fs/noted_change.h"
#include "fs/once_released.h"
#include "fs/open_files.h"
#include "fs/paths.h"

namespace ckptfs::fs {

namespace {

// A page that is locked is waited for, and on a store that hangs may be so for minutes. Who opens the file meanwhile
// waits in the kernel for it.
constexpr Milliseconds kLongestDrop{1000};

Failure bad_handle() {
    return failure(EBADF, "not an open file");
}

// A change of a file that is removed meanwhile leads nowhere, as one after that does.
bool is_lost_with_its_name(const Status& changed, const Node& node) {
    return !changed && node.removed && changed.error().errno_value == ENOENT;
}

}  // namespace

// --- writing

Failure OpenFiles::refuse_given_up(Handle& handle) {
    handle.was_refused = true;
    return failure(ESTALE, handle.writer->key() + ": stale descriptor; this process has since replaced the file");
}

void OpenFiles::write(HandleId id, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply) {
    const HandlePtr found = handles_.find(id);
    if (found != nullptr && found->is_given_up) {
        reply(refuse_given_up(*found));
        return;
    }
    if (found == nullptr || found->writer == nullptr) {
        reply(bad_handle());
        return;
    }
    const bool appends = (found->flags & O_APPEND) != 0 && !caller.is_page_cache && !caller.in_place;
    const Result<HandlePtr> ready = before_writing(id, found, appends);
    if (!ready) {
        reply(failure(ready.error()));
        return;
    }
    const HandlePtr& handle = *ready;
    if (handle->node->removed && (handle->writer->failed() || !handle->writer->readable())) {
        handle->node->has_dropped_writes = true;
        reply({});
        return;
    }
    counters_.written(data.data.size());
    if (!appends && (handle->flags & O_APPEND) != 0) {
        changes_in_place(*handle->node);
    }
    const auto change =
        std::make_shared<NotedChange>(handle->version->fate, [this, handle, caller] { note_writer(*handle, caller); });
    const auto done = [this, change, handle, node = handle->node, reply = std::move(reply)](Status written) {
        change->settle();
        if (is_lost_with_its_name(written, *node)) {
            node->has_dropped_writes = true;
            written = {};
        }
        if (handle->has_earlier_inode) {
            show_to_cached_readers(*handle->node);
        }
        reply(std::move(written));
    };
    if (appends) {
        handle->writer->append(std::move(data), done);
    } else {
        handle->writer->write(offset, std::move(data), done);
    }
    change->settle();
}

// The kernel drops what it has of the inode by which a change came.
void OpenFiles::show_to_cached_readers(const Node& node) {
    bool are_there = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        are_there = node.cached_handles > 0;
    }
    if (are_there) {
        state_.env.kernel_cache.invalidate_inode(node.id);
    }
}

// What was only appended to may be published as it grows, also where it was cut meanwhile; what is written from now on
// is not.
void OpenFiles::changes_in_place(Node& node) {
    const NodeTable::Lock lock = state_.nodes.lock();
    if (node.only_appended || node.is_live_log) {
        node.only_appended = false;
        live_logs_.opened(lock, node);
    }
}

bool OpenFiles::publishes_marker(const FileWriter& writer, const std::string& key, CommitReason reason) const {
    const bool publishes = writer.dirty() && !(saves_only_writes(reason) && writer.pristine());
    return publishes && gate_.is_marker(key);
}

void OpenFiles::commit_in_order(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, CommitReason reason,
                                Reply<void> reply) {
    const std::string key = writer->key();
    if (publishes_marker(*writer, key, reason)) {
        commit_marker(node, writer, key, reason, std::move(reply));
    } else {
        commit_when_first(node, writer, {key, false}, reason, std::move(reply));
    }
}

void OpenFiles::commit_when_first(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const KeyToCommit& to,
                                  CommitReason reason, Reply<void> reply) {
    const KeyOrder::Place place = state_.key_order.enter({to.key});
    state_.key_order.when_first(place, [this, node, writer, to, reason, place, reply = std::move(reply)] {
        const auto leave = [this, place] { state_.key_order.leave(place); };
        if (writer->key() == to.key && (to.is_allowed || !publishes_marker(*writer, to.key, reason))) {
            commit(node, writer, reason, to.permit, reply, leave);
            return;
        }
        // Renamed meanwhile, there is another line to wait in. At a marker's name there is the gate before it, also for
        // what had nothing to save when it came. Not asked from here: what it saves first may wait for this place.
        leave();
        commit_in_order(node, writer, reason, reply);
    });
}

// While a commit waited for its turn another may have begun to write to the file, or in another way than a log is
// written: then it is theirs to publish.
bool OpenFiles::is_left_to_others(const Node& node, const WrittenVersion* version, CommitReason reason) const {
    if (reason == CommitReason::kMade) {
        return version != nullptr && version->fate.state(kUnseenProcess, kUnseenProcess).written;
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    if (reason == CommitReason::kPublish) {
        return !node.is_live_log;
    }
    return reason == CommitReason::kRelease && node.writable_handles > 0;
}

void OpenFiles::commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, CommitReason reason,
                       const PublishPermit& permit, Reply<void> reply, std::function<void()> ended) {
    const std::shared_ptr<WrittenVersion> version = written_version_of(node, writer);
    if (version != nullptr && version->fate.left_by_killed_writer()) {
        reply(failure(lost_error(*writer)));
        ended();
        return;
    }
    // Of a file that was removed while this waited nothing is published, and its handles go on.
    const bool is_removed = node->removed && !writer->failed();
    if (is_removed || is_left_to_others(*node, version.get(), reason) ||
        (version != nullptr && version->is_truncated_away() && !writer->failed())) {
        reply({});
        ended();
        return;
    }
    if (reason == CommitReason::kMade && version != nullptr && !writer->dirty() && !writer->failed()) {
        commit_once_more(node, writer, version, std::move(reply), std::move(ended));
        return;
    }
    const VersionFate::Generation begun = version != nullptr ? version->fate.commit_begins() : 0;
    const bool is_changed = writer->dirty();
    PublishPermits* const permits = permit.counts ? &state_.env.write.permits : nullptr;
    if (permits != nullptr) {
        permits->give(writer->key(), permit);
    }
    const auto noted = [version, permits, key = writer->key(),
                        is_counted = version != nullptr && version->commits.begin()] {
        if (is_counted) {
            version->commits.end();
        }
        if (permits != nullptr) {
            permits->take_back(key);
        }
    };
    writer->commit(reason, [this, node, writer, version, begun, is_changed, noted, reason, reply = std::move(reply),
                            ended = std::move(ended)](Result<CommittedObject> object) {
        if (object) {
            // fsync before the first write publishes nothing.
            bool only_appended = false;
            if (version != nullptr && !object->etag.empty()) {
                only_appended = version->fate.committed(begun);
                replace_earlier_versions(node, *object);
            }
            state_.contents.remember(writer->key(), object->etag, {FileType::kFile, object->size});
            if (!object->etag.empty()) {
                state_.leftovers.forget(writer->key());
                state_.leftovers.published(writer->key(), object->etag, version);
            }
            const auto all = std::make_shared<AllEnded>(1, reply);
            note_committed(node, *object, {is_changed, only_appended}, [all] { all->one_more({}); });
            noted();
            const auto cleared = [all, ended] {
                all->one_more({});
                ended();
            };
            // Another mount that commits a marker after this close finds no record of an earlier failure.
            object->etag.empty() ? cleared() : state_.failed.clear(writer->key(), cleared);
            return;
        }
        noted();
        if (reason == CommitReason::kPublish && !writer->failed()) {
            reply(failure(object.error()));
            ended();
            return;
        }
        if (node->removed) {
            // Meanwhile: that gives it up itself.
            reply({});
            ended();
            return;
        }
        // Before the answer, upon which a release goes on.
        abort_begins();
        reply(failure(object.error()));
        // It may have been given up while its last request was in flight.
        writer->abort(std::move(object.error()), [this, ended](const Status&) {
            ended();
            abort_ends();
        });
    });
}

void OpenFiles::note_committed(const NodePtr& node, const CommittedObject& object, Change change,
                               std::function<void()> dropped) {
    const auto drops = std::make_shared<OnceReleased>(std::move(dropped));
    // fsync before the first write publishes nothing.
    if (object.etag.empty()) {
        return;
    }
    const ObjectVersion version{object.etag, object.size, object.stored_size, object.modified};
    bool pages_are_old = false;
    // What was only appended leaves the pages before it as they are, and a reader of those its read-ahead.
    std::uint64_t from = 0;
    std::vector<Grown> followers;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const bool is_same = node->committed && node->committed->etag == object.etag;
        if (is_same && !change.is_made) {
            return;
        }
        if (!is_same) {
            // By all of its writers, or by those that have written since the commit before.
            const bool only_appended = change.only_appended || node->only_appended;
            from = only_appended && node->committed ? node->committed->size : 0;
            followers = note_version(lock, node, version, only_appended);
        }
        // Those that have it open may have filled pages since the commit before, also by a mapping. Bytes that were
        // changed, read, and changed back are in them, too.
        pages_are_old =
            !node->pages_etag.empty() || node->pages_were_read || node->cached_handles > 0 || node->readers > 0;
        node->forget_pages();
        const SteadyTime now = state_.env.clock.now();
        node->checked = node->linked ? now : SteadyTime{};
        node->committed_beside.reset();
        if (!node->linked) {
            // The name has another node by now, and the bucket this commit: the next lookup has to ask.
            if (const NodePtr current = state_.nodes.child(lock, node->parent, node->name)) {
                current->checked = SteadyTime{};
                current->committed_beside = std::make_unique<const std::string>(object.etag);
            }
        }
    }
    if (pages_are_old) {
        state_.env.kernel_cache.invalidate_inode(node->id, {.from = from, .held = drops});
    }
    for (const Grown& follower : followers) {
        show_growth(follower, version, drops);
    }
    if (pages_are_old || !followers.empty()) {
        waits_.after(kLongestDrop, [late = std::weak_ptr(drops)] {
            if (const auto waiting = late.lock()) {
                waiting->run();
            }
        });
    }
}

std::vector<OpenFiles::Grown> OpenFiles::note_version(const NodeTable::Lock& lock, const NodePtr& node,
                                                      const ObjectVersion& version, bool only_appended) {
    counters_.committed(version.size, version.stored_size);
    if (node->parent != nullptr) {
        lookups_.forget_listed(node->parent->id, node->name);
    }
    const bool had_bytes = node->committed && node->committed->size > 0;
    node->committed = version;
    node->reader = nullptr;
    node->rewrites += only_appended ? 0 : 1;
    std::vector<Grown> grown;
    for (const NodePtr& follower : NodeTable::followers(lock, *node)) {
        grown.push_back({follower, only_appended && follower->committed ? follower->committed->size : 0});
        if (only_appended) {
            follower->grown = std::make_unique<ObjectVersion>(version);
        } else {
            state_.nodes.stop_following(lock, follower);
        }
    }
    // Who has read the version before may have mapped it, and fills pages of this inode with it: the next open gets
    // another inode.
    const bool is_read_as_before =
        had_bytes && !only_appended && node->readers > 0 && (node->writer == nullptr || !node->writer->readable());
    // What was written by another node's inode does not show in the size that the kernel has of this one.
    node->has_uncertain_size = node->has_uncertain_size || node->shares_inode || is_read_as_before;
    return grown;
}

void OpenFiles::show_growth(const Grown& grown, const ObjectVersion& shown, const std::shared_ptr<const void>& drops) {
    const auto show = [this, follower = grown.node, shown] {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (follower->grown) {
            follower->committed = shown;
            follower->reader = nullptr;
            // Else a notice of what has been added since is on its way, and shows that.
            if (follower->grown->etag == shown.etag) {
                follower->grown.reset();
            }
        }
    };
    state_.env.kernel_cache.invalidate_inode(grown.node->id, {.from = grown.from, .done = show, .held = drops});
}

void OpenFiles::truncate(NodeId id, std::optional<HandleId> handle_id, std::uint64_t size, Reply<Attributes> reply) {
    const HandlePtr handle = handle_id ? handles_.find(*handle_id) : nullptr;
    if (handle != nullptr && handle->writer != nullptr) {
        set_size(*handle_id, handle, size, reply);
    } else {
        truncate_by_name(id, size, 0, std::move(reply));
    }
}

// truncate(2) by name is an open for its time: so it is renamed and saved as what other opens change is. It is saved on
// return, unless another has the file open: that one saves it. Where all that was written is saved, it may have been
// closed; a log that is still open does not wait.
void OpenFiles::truncate_by_name(NodeId id, std::uint64_t size, int waits, Reply<Attributes> reply) {
    bool may_be_closed = false;
    NodePtr node;
    Result<std::optional<HandleId>> opened = failure(ESTALE, "the file is gone");
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node = state_.nodes.find(lock, id);
        const auto go_on = [this, id, size, waits, reply] { truncate_by_name(id, size, waits, reply); };
        if (node != nullptr && waits_for_its_name(lock, *node, go_on)) {
            return;
        }
        may_be_closed = waits < kReleaseWaits && node != nullptr && node->writer != nullptr && !node->is_live_log &&
                        !node->writer->dirty() && !node->writer->failed();
        if (node != nullptr && !may_be_closed) {
            opened = open_by_name(lock, node, size);
        }
    }
    if (may_be_closed) {
        waits_.after(release_wait(waits), [this, id, size, waits, reply = std::move(reply)] {
            truncate_by_name(id, size, waits + 1, reply);
        });
        return;
    }
    const auto answer = [this, node, reply = std::move(reply)](const Status& done) {
        if (!done) {
            reply(failure(done.error()));
            return;
        }
        Attributes attributes;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            attributes = state_.attributes(lock, *node);
        }
        reply(attributes);
    };
    if (!opened || !*opened) {
        answer(opened ? Status() : failure(opened.error()));
        return;
    }
    const HandleId id_of_handle = **opened;
    const HandlePtr handle = handles_.find(id_of_handle);
    if (handle == nullptr) {
        answer(failure(ENOTCONN, "the mount has ended"));
        return;
    }
    set_size(id_of_handle, handle, size, [this, id_of_handle, handle, answer](const Result<Attributes>& cut) {
        release(id_of_handle, [answer, handle, cut](Status saved) {
            if (const auto failed = handle->writer->failed(); cut && saved && failed && !handle->node->removed) {
                // Before its release had something to save.
                saved = failure(*failed);
            }
            answer(cut ? std::move(saved) : failure(cut.error()));
        });
    });
}

// Empty where it has the size.
Result<std::optional<HandleId>> OpenFiles::open_by_name(const NodeTable::Lock& lock, const NodePtr& node,
                                                        std::uint64_t size) {
    if (node->type != FileType::kFile) {
        return failure(EISDIR, "not a file that can be truncated");
    }
    OpenRequest request;
    request.node = node;
    request.flags = O_RDWR;
    request.is_by_name = true;
    // What is being written goes on while the mount ends.
    if (node->writer != nullptr) {
        return add_handle(lock, request, node->writer, nullptr).handle;
    }
    if (const Status possible = may_write(); !possible) {
        return failure(possible.error());
    }
    if (!node->linked) {
        return failure(ESTALE, "another version has the name, or it was removed");
    }
    const ObjectVersion version = node->committed.value_or(ObjectVersion{});
    if (version.size == size) {
        return std::nullopt;
    }
    const bool expected = take_expected(lock, *node, ExpectedOpen::kByName, true);
    if ((node->is_read() && !expected) || node->passes_through()) {
        return give_writers_node(lock, node, {ExpectedOpen::kByName, true, state_.env.clock.now(), {}}, O_RDWR);
    }
    auto writer = state_.make_writer(state_.key(lock, *node), request.flags, committed_object(version));
    return add_handle(lock, request, std::move(writer), nullptr).handle;
}

void OpenFiles::set_size(HandleId id, HandlePtr handle, std::uint64_t size, const Reply<Attributes>& reply) {
    if (handle->is_given_up) {
        reply(refuse_given_up(*handle));
        return;
    }
    if (handle->writer->size() != size || appends_to_what_is_cut_away(*handle)) {
        Result<HandlePtr> ready = before_writing(id, handle);
        if (!ready) {
            reply(failure(ready.error()));
            return;
        }
        handle = std::move(*ready);
    }
    const std::shared_ptr<FileWriter>& writer = handle->writer;
    std::shared_ptr<NotedChange> change;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        Node& node = *handle->node;
        if (node.writer == writer && writer->size() != size) {
            change = std::make_shared<NotedChange>(node.version->fate, [this, version = node.version, handle] {
                version->changed_at = state_.truncations.load();
                version->fate.resized(handle->opener);
            });
        }
        node.only_appended = false;
    }
    const auto answer = [this, handle, reply](const Status& done) {
        if (!done) {
            reply(failure(done.error()));
            return;
        }
        Attributes attributes;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            attributes = state_.attributes(lock, *handle->node);
        }
        if (handle->has_earlier_inode) {
            show_to_cached_readers(*handle->node);
        }
        attributes.inode = handle->inode;
        reply(attributes);
    };
    // A file without a name that cannot be read is truncated just as it is written: nothing of it is published.
    if (handle->node->removed && (writer->failed() || !writer->readable())) {
        answer({});
    } else if (change == nullptr) {
        writer->truncate(size, answer);
    } else {
        writer->truncate(size, [change, handle, answer](const Status& cut) {
            change->settle();
            answer(is_lost_with_its_name(cut, *handle->node) ? Status() : cut);
        });
        change->settle();
    }
}

}  // namespace ckptfs::fs
