// SPDX-License-Identifier: Apache-2.0
// Opening a file with O_TRUNC while others have it open, and truncate(2). What those append then is in
// open_files_appending.cc.
//
// Three goals: readers and writers keep what they have, and of several commits the last wins as a whole; locks
// hold, which the kernel keeps with its inode, our node; and open(2) succeeds. So:
//   - A file that is empty keeps its node. Of the handles that truncated it the first to write has its version, with
//     any handles opened after that without O_TRUNC. Another handle that truncated it, and writes later, gets a
//     version of its own then, which takes the name, while the kernel's inode stays.
//   - A small file that is locked, or was while it was open, keeps its node as well, whatever it holds. It is truncated
//     by the first write of the process that holds the lock then; until then it is its previous holder's version.
//   - Otherwise the name gets a new node, and ESTALE makes the kernel look it up. It does that once. If another open
//     was faster again, the second try gets a version of its own in the same way.
#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fs/files/noted_change.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kMostRetries = 1024;
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

// Whether all is saved, so that the last descriptor may have been closed: then the file keeps its inode, and shows what
// is written to it. One that was written and is empty again keeps its inode, too, but what is written goes into another
// version, which fstat(2), as it comes without a handle, would not show before that release.
bool OpenFiles::waits_for_release(const NodeTable::Lock& /*lock*/, const OpenRequest& request) {
    const Node& node = *request.node;
    return request.waits < kTruncationWaits && node.linked && node.writer != nullptr && !node.writer->dirty() &&
           !node.writer->failed() && node.open_handles == node.writable_handles &&
           (!keeps_its_node(node) || node.version->was_written());
}

// Asked only where the answer counts, as it reads all of /proc/locks. It holds for as long as the file is open, because
// a lock that is handed over belongs to no process for a moment.
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

NodePtr OpenFiles::named_now(const NodeTable::Lock& lock, const NodePtr& node) const {
    return node->linked || node->parent == nullptr ? node : state_.nodes.child(lock, node->parent, node->name);
}

// What the caller has found may no longer have the name, where another process truncated it meanwhile: then the file
// that has it counts, which that process may have locked.
bool OpenFiles::asks_for_locks(const NodeTable::Lock& lock, OpenRequest& request) {
    const NodePtr node = named_now(lock, request.node);
    if (node == nullptr || !may_be_lock_file(lock, *node)) {
        return false;
    }
    LockFileAnswer asked{node, node->version, node->writer->progress().bytes_acknowledged, false, 1};
    if (const auto& last = request.lock_file) {
        asked.times_asked += last->times_asked;
        if ((last->node == node && last->version == asked.version && last->written == asked.written) ||
            asked.times_asked > kMostLockQuestions) {
            return false;
        }
    }
    request.lock_file = std::move(asked);
    return true;
}

bool OpenFiles::is_of_lock_file(const NodeTable::Lock& lock, const OpenRequest& request) {
    const auto& answer = request.lock_file;
    return answer && answer->is_lock_file && answer->node == request.node && may_be_lock_file(lock, *request.node);
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
        // Read only once, as the file may be written meanwhile.
        const bool keeps_node = keeps_its_node(*request->node);
        asks = asks_for_locks(lock, *request);
        if (!asks) {
            answer = open_truncated(lock, *request, keeps_node, renamed);
        }
    }
    if (asks) {
        request->lock_file->is_lock_file = is_lock_file(request->lock_file->node);
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
    if (const Status allowed = may_write(); !allowed && node->writer == nullptr) {
        return failure(allowed.error());
    }
    static_cast<void>(take_expected(lock, *node, request.thread, true));
    const bool is_shared = node->open_handles > 0 || node->writer != nullptr;
    if (node->linked && (!is_shared || keeps_node)) {
        return join_truncated(lock, request);
    }
    if (is_of_lock_file(lock, request)) {
        HandlePtr handle;
        const OpenedFile opened = join_truncated(lock, request, &handle);
        // What is there does not belong to this handle, also if others have only appended.
        node->version->joins(handle->truncated_at - 1);
        return opened;
    }
    const NodePtr named = named_now(lock, node);
    const bool others_lock = named != nullptr && named != node && named->is_lock_file && may_be_lock_file(lock, *named);
    if (request.is_second_try && (node->cached_handles > 0 || others_lock)) {
        // An error is better than that cached readers find the file empty, or that two processes have the lock.
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

OpenedFile OpenFiles::join_truncated(const NodeTable::Lock& lock, const OpenRequest& request, HandlePtr* joined) {
    const NodePtr& node = request.node;
    std::shared_ptr<FileWriter> writer = node->writer;
    const bool is_joined = writer != nullptr;
    if (!is_joined) {
        node->forget_pages();
        // The kernel has the size of the truncation.
        node->has_uncertain_size = false;
        // The followers of this file stop following it here.
        for (const NodePtr& follower : NodeTable::followers(lock, *node)) {
            state_.nodes.stop_following(lock, follower);
        }
        writer = state_.make_writer(state_.key(lock, *node), request.flags, std::nullopt);
    }
    HandlePtr opened;
    const OpenedFile answer = add_handle(lock, request, std::move(writer), nullptr, &opened);
    opened->has_only_truncated = true;
    if (joined != nullptr) {
        *joined = opened;
    }
    if (!is_joined) {
        node->version->fate.made(request.opener);
        note_believed_version(lock, *node);
    } else {
        node->version->truncated_again(opened->truncated_at);
        node->version->fate.truncated_again(request.opener);
    }
    return answer;
}

// The kernel truncates the inode by which the open succeeds, whatever version the handle has. It has to find one that
// is not read through the page cache, and none is read so until the open comes back.
void OpenFiles::prepare_second_try(const NodeTable::Lock& lock, const OpenRequest& request) {
    const Node& node = *request.node;
    if (node.parent == nullptr) {
        return;
    }
    const NodePtr named = named_now(lock, request.node);
    const bool is_shared =
        named != nullptr && named->type == FileType::kFile && (named->open_handles > 0 || named->writer != nullptr);
    if (is_shared && !keeps_its_node(*named) && !named->is_lock_file) {
        static_cast<void>(
            give_new_node(lock, named, named->committed.value_or(ObjectVersion{}), nullptr, expectation(request)));
    } else {
        // Also if what the caller opened was renamed over.
        state_.nodes.expect(lock, node.parent, node.name, expectation(request));
    }
}

void OpenFiles::note_believed_version(const NodeTable::Lock& /*lock*/, Node& node) {
    if (node.committed) {
        node.version->believed_etag = node.committed->etag;
    }
}

void OpenFiles::truncate(NodeId id, std::optional<HandleId> handle_id, std::uint64_t size, Reply<Attributes> reply) {
    const HandlePtr handle = handle_id ? handles_.find(*handle_id) : nullptr;
    if (handle != nullptr && handle->writer != nullptr) {
        set_size(*handle_id, handle, size, reply);
    } else {
        truncate_by_name(id, size, 0, std::move(reply));
    }
}

// truncate(2) by name is a short open, so that it is renamed and saved as what other opens change is. It is saved on
// return, unless another handle has the file open, which saves it then. If all that was written is saved, the file may
// have been closed, and its RELEASE is waited for; not for a log, which is still open.
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
        if (node != nullptr && node->linked && state_.waits_for_left_rename(lock, node->parent, [=](bool is_elsewhere) {
                is_elsewhere ? reply(failure(ESTALE, "its directory was renamed")) : go_on();
            })) {
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
        closes_.release(id_of_handle, [answer, handle, cut](Status saved) {
            if (const auto failed = handle->writer->failed(); cut && saved && failed && !handle->node->removed) {
                // Before its release had something to save.
                saved = failure(*failed);
            }
            answer(cut ? std::move(saved) : failure(cut.error()));
        });
    });
}

// No handle if the file has this size already.
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
                handle->is_by_name ? version->fate.resized_by_name() : version->fate.resized(handle->opener);
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
            pages_.show_to_cached_readers(*handle->node);
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
