// SPDX-License-Identifier: Apache-2.0
// Writes on an open handle: to which version they go, and which process wrote. Which version an append goes to is in
// open_files_appending.cc.
#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fs/files/noted_change.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

namespace {

// PID_MAX_LIMIT of Linux is 2^22.
constexpr int kThreadBits = 22;

}  // namespace

bool OpenFiles::is_lost_with_its_name(const Status& changed, const Node& node) {
    return !changed && node.removed && changed.error().errno_value == ENOENT;
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
            pages_.show_to_cached_readers(*handle->node);
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

// What has been noted of this thread since the last commit need not be looked up again.
void OpenFiles::note_writer(Handle& handle, const Caller& caller) const {
    handle.version->changed_at = state_.truncations.load();
    VersionFate& fate = handle.version->fate;
    const VersionFate::Generation generation = fate.generation();
    if (caller.is_page_cache) {
        fate.changed_by_mapping();
        return;
    }
    const bool appends = (handle.flags & O_APPEND) != 0 && !caller.in_place;
    // If a descriptor does both, each write is noted.
    const bool is_usual = appends == ((handle.flags & O_APPEND) != 0);
    const std::uint64_t noted =
        is_usual ? (generation << kThreadBits) | static_cast<std::uint64_t>(caller.thread) : VersionFate::kNever;
    if (handle.noted.exchange(noted) == noted && is_usual) {
        return;
    }
    const auto place = appends ? VersionFate::Place::kEnd : VersionFate::Place::kInside;
    fate.wrote(state_.env.processes.thread_group(caller.thread).value_or(kUnseenProcess), handle.opener, place,
               caller.has_left.get());
}

Result<HandlePtr> OpenFiles::before_writing(HandleId id, HandlePtr handle, bool may_append) {
    if (may_append && may_append_elsewhere(*handle)) {
        Result<HandlePtr> moved = append_to_later_version(id, handle);
        if (!moved) {
            return moved;
        }
        handle = std::move(*moved);
    }
    if (!handle->has_only_truncated) {
        if (handle->truncated_at == 0 && (handle->flags & O_APPEND) == 0) {
            handle->version->joins(handle->opened_at);
        }
        return handle;
    }
    HandlePtr own;
    NameInDirectory renamed;
    {
        // Where several threads write first, one of them gives the handle its version.
        const MutexLock first_write(handles_.first_write);
        const HandlePtr now = handles_.find(id);
        if (now != handle || !handle->has_only_truncated) {
            return now != nullptr ? now : handle;
        }
        const bool can_read = (handle->flags & O_ACCMODE) != O_RDWR || handle->writer->readable();
        // As on a local disk the handle writes over what others have appended since it truncated the file. Where they
        // have only made it longer there is nothing to be written over.
        const std::uint64_t written = std::min(handle->writer->size(), handle->writer->progress().bytes_acknowledged);
        const bool may_overwrite = written <= kMostOverwritten;
        const bool is_first = may_overwrite && handle->version->belongs_to(handle->truncated_at);
        if (has_others(*handle->node)) {
            // Noted for those that open it.
            static_cast<void>(is_lock_file(handle->node));
        }
        const bool is_in_turn =
            may_overwrite && !is_first && state_.env.processes.is_locked(handle->inode, handle->opener);
        const bool is_its_own = is_first || is_in_turn;
        if (handle->version->has_lost_name) {
            handle->has_only_truncated = false;
            return handle;
        }
        if (handle->node->removed || (is_its_own && can_read)) {
            // The handle has truncated what it writes: the process that opened the file first no longer answers for it,
            // nor one that had the lock before.
            is_in_turn ? handle->version->fate.taken_over(handle->opener) : handle->version->fate.made(handle->opener);
            if (is_in_turn) {
                give_up_attempts_before(*handle);
                // Before what it writes now, in the writer's order. What fails of it is the file's failure.
                handle->writer->truncate(0, [](const Status&) {});
            }
            handle->writer->begin_anew();
            if ((handle->flags & O_APPEND) == 0) {
                changes_in_place(*handle->node);
            }
            handle->has_only_truncated = false;
            return handle;
        }
        const NodeTable::Lock lock = state_.nodes.lock();
        own = own_version(lock, *handle);
        handle->node->shares_inode = own->node->shares_inode = true;
        static_cast<void>(own->version->belongs_to(own->truncated_at));
        handles_.replace(id, own);
        // A thread that has found the earlier handle waits for this lock, and gets the new one.
        handle->has_only_truncated = false;
        renamed = {own->node->parent->id, own->node->name};
    }
    state_.env.kernel_cache.invalidate_entry(renamed.directory, renamed.name);
    // As if it had been closed: what others wrote to the version is theirs to publish.
    handle->version->closes.when_none([this, handle] { closes_.release_writer(handle, [](const Status&) {}); });
    return own;
}

HandlePtr OpenFiles::own_version(const NodeTable::Lock& lock, const Handle& opened) {
    const NodePtr& node = opened.node;
    const NodePtr fresh = state_.nodes.link_new(lock, node->parent, node->name, FileType::kFile);
    fresh->committed = node->committed;
    fresh->checked = state_.env.clock.now();
    fresh->version = std::make_shared<WrittenVersion>(opened.truncated_at);
    fresh->version->fate.made(opened.opener);
    note_believed_version(lock, *fresh);
    fresh->only_appended = (opened.flags & O_APPEND) != 0;
    fresh->written = state_.env.clock.wall_now();
    fresh->opened_to_write = state_.env.clock.now();
    fresh->open_handles = fresh->writable_handles = 1;
    auto handle = std::make_shared<Handle>();
    handle->flags = opened.flags & ~O_EXCL;
    handle->node = fresh;
    handle->opener = opened.opener;
    handle->inode = opened.inode;
    handle->has_earlier_inode = true;
    handle->truncated_at = opened.truncated_at;
    handle->opened_at = opened.opened_at;
    handle->version = fresh->version;
    handle->writer = state_.make_writer(state_.key(lock, *fresh), handle->flags, std::nullopt);
    if (handle->writer->readable()) {
        handle->changing = handle->writer;
    }
    failures_.watch(fresh, handle->writer, opened.opener);
    live_logs_.opened(lock, *fresh);
    fresh->writer = handle->writer;
    return handle;
}

// What was only appended to may be published as it grows, also if it was truncated meanwhile; from now on it may not.
void OpenFiles::changes_in_place(Node& node) {
    const NodeTable::Lock lock = state_.nodes.lock();
    if (node.only_appended || node.is_live_log) {
        node.only_appended = false;
        live_logs_.opened(lock, node);
    }
}

}  // namespace ckptfs::fs
