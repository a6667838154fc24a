// SPDX-License-Identifier: Apache-2.0
// Appending by a descriptor whose version is not the one that has the name any more: `: > train.log` beside a program
// that logs with O_APPEND. It goes on in the later version, behind what that holds, as on a local disk, where
//
//   - the later one was saved: to publish what the earlier one holds would undo that, and fail a writer of the later;
//   - or it was only truncated so far, and appended to;
//   - or it has a log's name: what is published of that may be a part. In other files, what is being rewritten must not
//     be published by a handle that appends, nor be given up with it: such a handle goes on in its own version.
#include <fcntl.h>

#include <utility>

#include "base/globs.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

bool OpenFiles::may_append_elsewhere(const Handle& handle) {
    return (handle.flags & O_APPEND) != 0 && handle.version->has_later && !handle.version->has_lost_name &&
           !handle.node->removed && !handle.writer->failed();
}

bool OpenFiles::appends_to_what_is_cut_away(const Handle& handle) {
    return may_append_elsewhere(handle) && handle.version->is_truncated_away();
}

bool OpenFiles::may_be_joined(const NodeTable::Lock& /*lock*/, const Node& later, const Node& earlier) const {
    if (later.writer == nullptr || later.writer->failed() || later.version->fate.left_by_killed_writer() ||
        later.version->made_at <= earlier.version->changed_at) {
        return false;
    }
    return matches_any(later.name, state_.env.write.config.keep_on_kill) || is_only_truncated(later) ||
           later.version->fate.state(kUnseenProcess, kUnseenProcess).only_appended;
}

bool OpenFiles::is_only_truncated(const Node& node) {
    return node.writer->size() == 0 && node.writer->dirty() &&
           !node.version->fate.state(kUnseenProcess, kUnseenProcess).written;
}

bool OpenFiles::appends_to_a_later_version(const NodeTable::Lock& lock, const Handle& handle) const {
    if (appends_to_what_is_cut_away(handle)) {
        return true;
    }
    if (!may_append_elsewhere(handle) || handle.has_only_truncated) {
        return false;
    }
    const NodePtr& node = handle.node;
    const NodePtr named = node->parent != nullptr ? state_.nodes.child(lock, node->parent, node->name) : nullptr;
    return named != nullptr && named != node && node->version == handle.version && may_be_joined(lock, *named, *node);
}

Result<HandlePtr> OpenFiles::open_what_has_the_name(const NodeTable::Lock& lock, const Handle& earlier) {
    const NodePtr& node = earlier.node;
    NodePtr named = state_.nodes.child(lock, node->parent, node->name);
    if (const auto& last = earlier.version->replaced_by; named == nullptr && !node->removed && last) {
        // The kernel knows the name by an earlier version: the later one was closed by all that had it.
        named = state_.nodes.link_new(lock, node->parent, node->name, FileType::kFile);
        named->committed = ObjectVersion{last->etag, last->size, last->stored_size, last->modified};
    }
    if (named == nullptr || named == node || named->type != FileType::kFile ||
        (named->writer == nullptr && !named->committed)) {
        return failure(ESTALE, earlier.writer->key() + ": stale descriptor; the file was replaced, open it again");
    }
    OpenRequest request;
    request.flags = earlier.flags & ~(O_CREAT | O_EXCL | O_TRUNC);
    request.opener = earlier.opener;
    std::shared_ptr<FileWriter> writer = named->writer;
    if (writer != nullptr && writer->failed()) {
        return failure(*writer->failed());
    }
    if (writer == nullptr) {
        writer = state_.make_writer(state_.key(lock, *named), request.flags, committed_object(*named->committed));
        if (writer->readable() ? named->is_read() : named->open_handles > 0) {
            static_cast<void>(give_writers_node(lock, named, expectation(request), request.flags));
            named = state_.nodes.child(lock, node->parent, node->name);
            static_cast<void>(take_expected(lock, *named, request.thread, true));
        }
    }
    request.node = named;
    const bool is_only_appended = writer == named->writer && is_only_truncated(*named);
    HandlePtr opened;
    const HandleId id = add_handle(lock, request, std::move(writer), nullptr, &opened).handle;
    if (is_only_appended) {
        // The death of the process that truncated the file takes nothing of this back.
        named->version->fate.truncated_again(earlier.opener);
        named->only_appended = true;
        live_logs_.opened(lock, *named);
    }
    static_cast<void>(handles_.remove(id));
    opened->inode = earlier.inode;
    opened->has_earlier_inode = true;
    node->shares_inode = named->shares_inode = true;
    return opened;
}

Result<HandlePtr> OpenFiles::append_to_later_version(HandleId id, const HandlePtr& handle) {
    Result<HandlePtr> opened = failure(EIO, "not opened");
    NameInDirectory name;
    {
        const MutexLock first_write(handles_.first_write);
        const HandlePtr now = handles_.find(id);
        if (now != handle) {
            return now != nullptr ? now : handle;
        }
        const NodeTable::Lock lock = state_.nodes.lock();
        if (!appends_to_a_later_version(lock, *handle)) {
            return handle;
        }
        opened = open_what_has_the_name(lock, *handle);
        if (!opened) {
            return opened;
        }
        handles_.replace(id, *opened);
        name = {handle->node->parent->id, handle->node->name};
    }
    state_.env.kernel_cache.invalidate_entry(name.directory, name.name);
    state_.env.kernel_cache.invalidate_inode(handle->node->id);
    handle->version->closes.when_none([this, handle] { closes_.release_writer(handle, [](const Status&) {}); });
    return opened;
}

}  // namespace ckptfs::fs
