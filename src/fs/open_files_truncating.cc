// SPDX-License-Identifier: Apache-2.0
// Opening a file with O_TRUNC while others have it open. What those append then is open_files_appending.cc's.
//
// Three goals: readers and writers keep what they have, and of several commits the last wins as a whole; locks
// hold, which the kernel keeps with its inode, our node; and open(2) succeeds. So:
//   - A file that is empty keeps its node. Of the handles that truncated it the first to write has its version, with
//     any handles opened after that without O_TRUNC. Another handle that truncated it, and writes later, gets a
//     version of its own then, which takes the name, while the kernel's inode stays.
//   - A small file that is locked, or was while it was open, keeps its node as well, whatever it holds. It is truncated
//     by the first write of who has the lock then: until then it is the version of who had it before.
//   - Otherwise the name gets a new node, and ESTALE makes the kernel look it up. It does that once. If another open
//     was faster again, the second try gets a version of its own in the same way.
#include <fcntl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/globs.h"
#include "fs/open_files.h"
#include "fs/ordered_change.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kMostRetries = 1024;
// Far below what the first part holds, within which a file may be written out of order.
constexpr std::uint64_t kMostOverwritten = std::uint64_t{1} << 20;
// The kernel looks again at once, which may take it a look into the bucket.
constexpr std::chrono::seconds kSecondTryWithin{10};

}  // namespace

bool OpenFiles::is_second_try(const NodeTable::Lock& /*lock*/, pid_t thread, NodeId parent, std::string_view name) {
    const SteadyTime now = state_.env.clock.now();
    const auto found = std::find_if(retries_.begin(), retries_.end(), [&](const Retry& retry) {
        return retry.thread == thread && retry.parent == parent && retry.name == name;
    });
    if (found == retries_.end()) {
        return false;
    }
    const bool is_expected = now - found->since <= kSecondTryWithin;
    retries_.erase(found);
    return is_expected;
}

void OpenFiles::expect_second_try(const NodeTable::Lock& /*lock*/, const OpenRequest& request) {
    retries_.push_back({request.thread, request.node->parent->id, request.node->name, state_.env.clock.now()});
    if (retries_.size() > kMostRetries) {
        retries_.pop_front();
    }
}

bool OpenFiles::keeps_its_node(const Node& node) {
    if (!node.linked) {
        return false;
    }
    if (node.writer == nullptr) {
        return !node.committed || node.committed->size == 0;
    }
    return node.writer->size() == 0 && !node.writer->failed() && !node.version->fate.left_half();
}

// All is saved, so its last descriptor may have been closed: then the file keeps its inode, and shows what is written
// to it. One that was written and is empty again keeps its inode, too, but what is written goes into another version,
// which fstat(2), that comes without a handle, would not be told of before that release.
bool OpenFiles::waits_for_release(const NodeTable::Lock& /*lock*/, const OpenRequest& request) {
    const Node& node = *request.node;
    return request.waits < kTruncationWaits && node.linked && node.writer != nullptr && !node.writer->dirty() &&
           !node.writer->failed() && node.open_handles == node.writable_handles &&
           (!keeps_its_node(node) || node.version->was_written());
}

// Asked where the answer counts, which is seldom: it reads all of /proc/locks. It holds for as long as the file is
// open, because a lock that is handed over belongs to no process for a moment.
bool OpenFiles::is_lock_file(const NodePtr& node) {
    std::uint64_t inode = 0;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (node->is_lock_file) {
            return true;
        }
        inode = node->inode;
    }
    const bool is_locked = state_.env.processes.is_locked(inode, std::nullopt);
    const NodeTable::Lock lock = state_.nodes.lock();
    node->is_lock_file = node->is_lock_file || is_locked;
    return node->is_lock_file;
}

bool OpenFiles::has_others(const Node& node) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    return node.open_handles > 1;
}

bool OpenFiles::may_be_lock_file(const NodeTable::Lock& /*lock*/, const Node& node) {
    return node.linked && node.writer != nullptr && node.cached_handles == 0 &&
           node.writer->size() <= kMostOverwritten && !node.writer->failed();
}

void OpenFiles::open_for_truncating(const OpenRequestPtr& request) {
    bool waits = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        waits = !request->node->is_lock_file && waits_for_release(lock, *request);
    }
    if (waits) {
        waits_.after(release_wait(request->waits++), [this, request] { open_for_truncating(request); });
    } else {
        truncate_now(request);
    }
}

void OpenFiles::truncate_now(const OpenRequestPtr& request) {
    Result<OpenedFile> answer = failure(EIO, "not opened");
    std::optional<NameInDirectory> renamed;
    bool asks = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        // Looked at once: it may be written meanwhile.
        const bool keeps_node = keeps_its_node(*request->node);
        asks = !request->is_of_lock_file && may_be_lock_file(lock, *request->node);
        if (!asks) {
            answer = open_truncated(lock, *request, keeps_node, renamed);
        }
    }
    if (asks) {
        request->is_of_lock_file = is_lock_file(request->node);
        truncate_now(request);
        return;
    }
    if (renamed) {
        state_.env.kernel_cache.invalidate_entry(renamed->directory, renamed->name);
    }
    request->reply(std::move(answer));
}

Result<OpenedFile> OpenFiles::open_truncated(const NodeTable::Lock& lock, OpenRequest& request, bool keeps_node,
                                             std::optional<NameInDirectory>& renamed) {
    const NodePtr& node = request.node;
    static_cast<void>(take_expected(lock, *node, request.thread, true));
    const bool is_shared = node->open_handles > 0 || node->writer != nullptr;
    if (node->linked && (!is_shared || keeps_node)) {
        return join_truncated(lock, request);
    }
    if (request.is_of_lock_file.value_or(false) && may_be_lock_file(lock, *node)) {
        const OpenedFile opened = join_truncated(lock, request);
        // What is there is not what it writes, also where others have only appended.
        node->version->joins(handles_.find(opened.handle)->truncated_at - 1);
        return opened;
    }
    if (request.is_second_try && node->cached_handles > 0) {
        // Rather an error than that they find the file empty.
        return failure(ESTALE, "the name is being opened by others; open it again");
    }
    if (request.is_second_try) {
        Handle opened;
        opened.flags = request.flags;
        opened.node = node;
        opened.opener = request.opener;
        opened.inode = node->inode;
        opened.truncated_at = opened.opened_at = ++state_.truncations;
        const HandlePtr own = own_version(lock, opened);
        node->shares_inode = own->node->shares_inode = true;
        own->has_only_truncated = true;
        renamed = NameInDirectory{node->parent->id, node->name};
        return OpenedFile{handles_.add(own), true, false, 0};
    }
    expect_second_try(lock, request);
    if (!node->linked) {
        // The kernel looks once more, and must not find the name of a file that failed.
        state_.failed.looked_at(state_.key(lock, *node));
        prepare_second_try(lock, request);
        return failure(ESTALE, "another version has the name");
    }
    return give_new_node(lock, node, node->committed.value_or(ObjectVersion{}), nullptr, expectation(request));
}

OpenedFile OpenFiles::join_truncated(const NodeTable::Lock& lock, const OpenRequest& request) {
    const NodePtr& node = request.node;
    std::shared_ptr<FileWriter> writer = node->writer;
    const bool is_joined = writer != nullptr;
    if (!is_joined) {
        node->forget_pages();
        // The kernel goes by the truncation.
        node->has_uncertain_size = false;
        // The followers of this file stop following it here.
        for (const NodePtr& follower : NodeTable::followers(lock, *node)) {
            state_.nodes.stop_following(lock, follower);
        }
        writer = state_.make_writer(state_.key(lock, *node), request.flags, std::nullopt);
    }
    const OpenedFile answer = add_handle(lock, request, std::move(writer), nullptr);
    const HandlePtr opened = handles_.find(answer.handle);
    opened->has_only_truncated = true;
    if (!is_joined) {
        node->version->fate.made(request.opener);
        note_believed_version(lock, *node);
    } else {
        node->version->truncated_again(opened->truncated_at);
        node->version->fate.truncated_again(request.opener);
    }
    return answer;
}

// The kernel truncates the inode by which the open succeeds, whatever version the handle has: it is to find one that is
// not read through the page cache, and none is read so until it comes back.
void OpenFiles::prepare_second_try(const NodeTable::Lock& lock, const OpenRequest& request) {
    const Node& node = *request.node;
    if (node.parent == nullptr) {
        return;
    }
    const NodePtr named = state_.nodes.child(lock, node.parent, node.name);
    const bool is_shared =
        named != nullptr && named->type == FileType::kFile && (named->open_handles > 0 || named->writer != nullptr);
    if (is_shared && !keeps_its_node(*named) && !named->is_lock_file) {
        static_cast<void>(
            give_new_node(lock, named, named->committed.value_or(ObjectVersion{}), nullptr, expectation(request)));
    } else {
        // Also where what it opened was renamed over.
        state_.nodes.expect(lock, node.parent, node.name, expectation(request));
    }
}

void OpenFiles::note_believed_version(const NodeTable::Lock& /*lock*/, Node& node) {
    if (node.committed) {
        node.version->believed_etag = node.committed->etag;
    }
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
    watch(fresh, handle->writer, opened.opener);
    live_logs_.opened(lock, *fresh);
    fresh->writer = handle->writer;
    return handle;
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
        const MutexLock first_write(first_write_mutex_);
        const HandlePtr now = handles_.find(id);
        if (now != handle || !handle->has_only_truncated) {
            return now != nullptr ? now : handle;
        }
        const bool can_read = (handle->flags & O_ACCMODE) != O_RDWR || handle->writer->readable();
        // As on a local disk it writes over what others have appended since it truncated the file. Where they have only
        // made it longer there is nothing to be written over.
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
            // It has truncated what it writes: the process that opened it first no longer answers for it.
            handle->version->fate.made(handle->opener);
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
        // Who finds the earlier handle waits here until then, and gets the other.
        handle->has_only_truncated = false;
        renamed = {own->node->parent->id, own->node->name};
    }
    state_.env.kernel_cache.invalidate_entry(renamed.directory, renamed.name);
    // As if it had been closed: what others wrote to the version is theirs to publish.
    handle->version->closes.when_none([this, handle] { release_writer(handle, [](const Status&) {}); });
    return own;
}

// By a process that /proc does not show, of which no close has published it.
bool OpenFiles::is_truncated_again(const Handle& handle) const {
    return handle.version->fate.state(kUnseenProcess, handle.opener).unsaved && !handle.is_cut_off &&
           !handle.version->is_truncated_away() && decide_last_release(handle) == ReleaseAction::kCommit;
}

// Saved, empty, and truncated again since: that changes what another mount has saved meanwhile, and nothing else. To
// ask costs less than to write, and leaves no version in the bucket for each of many that take turns at a lock file.
void OpenFiles::commit_once_more(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                                 const std::shared_ptr<WrittenVersion>& version, Reply<void> reply,
                                 std::function<void()> ended) {
    if (!version->fate.state(kUnseenProcess, kUnseenProcess).unsaved) {
        reply({});
        ended();
        return;
    }
    const VersionFate::Generation begun = version->fate.commit_begins();
    state_.env.store.head(writer->key(), [this, node, writer, version, begun, reply = std::move(reply),
                                          ended = std::move(ended)](const Result<ObjectInfo>& object) {
        bool is_there = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            is_there = object && node->committed && node->committed->etag == object->etag;
        }
        if (is_there) {
            static_cast<void>(version->fate.committed(begun));
            reply({});
            ended();
            return;
        }
        // What it is to replace, or that the store does not answer, is the commit's to find out.
        writer->begin_anew();
        ended();
        commit_in_order(node, writer, CommitReason::kMade, reply);
    });
}

void OpenFiles::replace_earlier_versions(const NodePtr& node, const CommittedObject& object) {
    std::vector<NodePtr> earlier;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (node->removed || node->version == nullptr) {
            return;
        }
        const WrittenVersion::Moment made = node->version->made_at.load();
        earlier = state_.nodes.overtaken(lock, node->parent, node->name);
        std::erase_if(earlier, [&node](const NodePtr& version) { return version->id >= node->id; });
        for (const NodePtr& version : earlier) {
            WrittenVersion& written = *version->version;
            written.replaced_at = std::max(written.replaced_at.load(), made);
            written.replaced_by = object;
        }
        const bool is_log = matches_any(node->name, state_.env.write.config.keep_on_kill);
        if (is_log || (earlier.empty() && node->writable_handles <= 1)) {
            return;
        }
    }
    earlier.push_back(node);
    give_up_attempts(earlier);
}

// The last of the versions is committed. What the same process opened earlier, to write the same file, was for an
// attempt that failed: a kept exception, or a late garbage collector, closes it in the end, and its buffered data
// would replace the file.
void OpenFiles::give_up_attempts(const std::vector<NodePtr>& versions) {
    const NodePtr& committed = versions.back();
    const std::vector<HandlePtr> handles = handles_.all();
    std::map<pid_t, WrittenVersion::Moment> openers;
    for (const HandlePtr& handle : handles) {
        if (handle->node == committed && handle->noted != VersionFate::kNever) {
            WrittenVersion::Moment& last = openers[handle->opener];
            last = std::max(last, handle->opened_at);
        }
    }
    openers.erase(kUnseenProcess);
    for (const HandlePtr& handle : handles) {
        const bool is_earlier = handle->node == committed
                                    ? handle->has_only_truncated.load()
                                    : handle->version != nullptr && handle->version->is_truncated_away();
        const auto opener = openers.find(handle->opener);
        if (is_earlier && (handle->flags & O_APPEND) == 0 && opener != openers.end() &&
            handle->opened_at <= opener->second &&
            std::find(versions.begin(), versions.end(), handle->node) != versions.end()) {
            handle->is_given_up = true;
        }
    }
}

// What the same process has of a lock file from before, perhaps with data in a buffer.
void OpenFiles::give_up_attempts_before(const Handle& handle) const {
    for (const HandlePtr& other : handles_.all()) {
        if (other->node == handle.node && other->opener == handle.opener && other->opened_at < handle.opened_at &&
            other->writer != nullptr && (other->flags & O_APPEND) == 0) {
            other->is_given_up = true;
        }
    }
}

std::optional<pid_t> OpenFiles::process_to_tell_by(NodeId node, pid_t thread) const {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr found = state_.nodes.find(lock, node);
        if (found == nullptr || !found->shares_inode || found->open_handles == 0) {
            return std::nullopt;
        }
    }
    return state_.env.processes.thread_group(thread);
}

// What it has closed may not have been released yet.
NodePtr OpenFiles::opened_last(const NodeTable::Lock& /*lock*/, const Node& node, pid_t process) const {
    HandlePtr last;
    for (const HandlePtr& handle : handles_.all()) {
        if (handle->inode == node.inode && handle->opener == process && !handle->is_by_name &&
            (last == nullptr || handle->opened_at >= last->opened_at)) {
            last = handle;
        }
    }
    return last != nullptr ? last->node : nullptr;
}

Attributes OpenFiles::attributes(const NodeTable::Lock& lock, const Node& node, std::optional<HandleId> handle_id,
                                 std::optional<pid_t> process) const {
    const HandlePtr handle = handle_id && node.shares_inode ? handles_.find(*handle_id) : nullptr;
    NodePtr shown = handle != nullptr ? handle->node : nullptr;
    if (shown == nullptr && node.shares_inode && process) {
        shown = opened_last(lock, node, *process);
    }
    if (shown == nullptr && node.shares_inode && node.open_handles == 0 && !node.linked && !node.removed) {
        // fstat(2) comes without a handle: those who have this inode open have gone on to the version with the name.
        shown = state_.nodes.child(lock, node.parent, node.name);
    }
    const bool is_file = shown != nullptr && shown->type == FileType::kFile;
    Attributes attributes = state_.attributes(lock, is_file ? *shown : node);
    attributes.inode = node.inode;
    return attributes;
}

int OpenFiles::count_other_handles(const Handle& handle, pid_t process) const {
    const std::vector<HandlePtr> all = handles_.all();
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const HandlePtr& other) {
        return other.get() != &handle && other->writer != nullptr && other->opener == process &&
               other->inode == handle.inode && (other->flags & O_ACCMODE) == (handle.flags & O_ACCMODE);
    }));
}

}  // namespace ckptfs::fs
