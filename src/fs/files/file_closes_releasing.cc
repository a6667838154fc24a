// SPDX-License-Identifier: Apache-2.0
// What a RELEASE means, and the end of the connection, after which none comes.
#include <utility>

#include "base/globs.h"
#include "fs/files/file_closes.h"

namespace ckptfs::fs {

namespace {

Error replaced_error(const FileWriter& writer) {
    Error why;
    why.message = writer.key() + " was replaced by a newer version since this was written to it";
    return why;
}

}  // namespace

void FileCloses::release(HandleId id, Reply<void> reply) {
    HandlePtr handle;
    {
        // A first write that gives it another version comes before, or finds it gone.
        const MutexLock first_write(handles_.first_write);
        handle = handles_.remove(id);
    }
    if (handle == nullptr) {
        reply(bad_handle());
    } else if (handle->version == nullptr) {
        finish_release(handle, {}, reply);
    } else {
        // A close that was given up because its process dies may not have been decided yet.
        handle->version->closes.when_none([this, handle, reply = std::move(reply)] {
            handle->version->renames.when_none([this, handle, reply] { release_writer(handle, reply); });
        });
    }
}

void FileCloses::disown(HandleId id) {
    if (const HandlePtr handle = handles_.find(id)) {
        handle->is_disowned = true;
        const NodeTable::Lock lock = state_.nodes.lock();
        if (handle->is_cached) {
            // The kernel has not dropped what it has of an earlier version: it does so at an open.
            handle->node->pages_etag.clear();
        }
    }
    release(id, [](const Status& /*logged*/) {});
}

// Called while the handle still counts among the writable ones: the handle that turns out to be the last goes by this.
void FileCloses::note_let_go(const Handle& handle) const {
    if (handle.is_by_name) {
        return;
    }
    // A mapping outlives its descriptors: it ends with no close(2), as its process does or by munmap(2).
    LetGo last{handle.opener, ExitState::kRunning};
    if (handle.version->fate.state(kUnseenProcess, handle.opener).mapped) {
        const pid_t closer = handle.last_closer;
        last.end = state_.env.processes.exit_state(handle.opener);
        const bool may_be_killed = last.end == ExitState::kKilledBySignal || last.end == ExitState::kUnknown;
        if (!may_be_killed && closer != kUnseenProcess) {
            last.end = state_.env.processes.exit_state(closer);
        }
    }
    handle.version->last_let_go = last;
}

void FileCloses::release_writer(const HandlePtr& handle, const Reply<void>& reply) {
    note_let_go(*handle);
    bool last_writer = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        last_writer = --handle->node->writable_handles == 0;
    }
    if (handle->is_disowned && !last_writer) {
        handle->version->fate.disowned(handle->opener);
    }
    const std::shared_ptr<FileWriter>& writer = handle->writer;
    const auto finish = [this, handle, reply](Status saved) { finish_release(handle, std::move(saved), reply); };
    const auto end = [&](Error why) { writer->abort(std::move(why), [finish](const Status&) { finish({}); }); };
    const bool is_removed = handle->node->removed;
    if (last_writer && is_removed && !writer->failed()) {
        // The writer may still have left something in the store.
        end(removed_error(*writer));
    } else if (!last_writer || is_removed || writer->failed()) {
        finish({});
    } else if (!writer->dirty()) {
        commits_.is_truncated_again(*handle)
            ? commits_.commit_in_order(handle->node, writer, CommitReason::kMade, finish)
            : finish({});
    } else if (handle->version->is_truncated_away()) {
        end(replaced_error(*writer));
    } else if (handle->is_cut_off) {
        release_cut_off(handle, reply);
    } else if (FileCommits::decide_last_release(*handle) == ReleaseAction::kAbort) {
        failures_.abort_killed(*handle, [finish] { finish({}); });
    } else {
        commits_.commit_in_order(handle->node, writer, CommitReason::kRelease, finish);
    }
}

void FileCloses::release_cut_off(const HandlePtr& handle, const Reply<void>& reply) {
    // A commit under way may be that of a close.
    const KeyOrder::Place place = state_.key_order.enter({handle->writer->key()});
    state_.key_order.when_first(place, [this, handle, reply, place] {
        state_.key_order.leave(place);
        const std::shared_ptr<FileWriter>& writer = handle->writer;
        const VersionState version = handle->version->fate.state(kUnseenProcess, handle->opener);
        bool is_log = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            is_log = matches_any(handle->node->name, state_.env.write.config.keep_on_kill);
        }
        if (writer->failed() || !writer->dirty()) {
            finish_release(handle, {}, reply);
        } else if (decide_cut_off(version, is_log) == ReleaseAction::kCommit) {
            commits_.commit_in_order(handle->node, writer, CommitReason::kRelease, [this, handle, reply](Status saved) {
                finish_release(handle, std::move(saved), reply);
            });
        } else {
            draining_.note_cut_off(writer->key());
            failures_.give_up(*handle, cut_off_error(*writer), FileFailures::EndOfFile::kFailed,
                              [this, handle, reply] { finish_release(handle, {}, reply); });
        }
    });
}

void FileCloses::finish_release(const HandlePtr& handle, Status saved, const Reply<void>& reply) {
    draining_.after_abort(handle->writer);
    std::string vanished;
    NodeId parent = 0;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = handle->node;
        --node->open_handles;
        node->readers -= handle->has_read ? 1 : 0;
        node->cached_handles -= handle->is_cached ? 1 : 0;
        end_passing_through(lock, *handle);
        if (node->open_handles == 0) {
            state_.nodes.stop_following(lock, node);
        }
        if (handle->writer != nullptr && node->writable_handles == 0 && node->writer == handle->writer) {
            node->writer = nullptr;
            if (!node->committed && !handle->writer->pristine()) {
                node->lost_size = handle->writer->size();
            }
            if (node->linked && !node->committed) {
                vanished = node->name;
                parent = node->parent->id;
                state_.nodes.unlink(lock, node);
            } else if (handle->writer->failed()) {
                node->checked = SteadyTime{};
            }
        }
        state_.nodes.drop_if_unused(lock, node);
    }
    if (!vanished.empty()) {
        state_.env.kernel_cache.invalidate_entry(parent, vanished);
    }
    reply(std::move(saved));
    draining_.answer();
}

void FileCloses::disconnected() {
    if (!state_.disconnected.exchange(true)) {
        for (const HandleId id : handles_.ids()) {
            if (const HandlePtr handle = handles_.find(id)) {
                handle->is_cut_off = true;
            }
            release(id, [](const Status& /*logged*/) {});
        }
    }
    draining_.answer();
}

}  // namespace ckptfs::fs
