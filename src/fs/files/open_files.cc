// SPDX-License-Identifier: Apache-2.0
// Opening: which node, which version, which writer; to read in open_files_reading.cc, with O_TRUNC in
// open_files_truncating.cc.
#include "fs/files/open_files.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/state/paths.h"

namespace ckptfs::fs {

namespace {

// O_TRUNC requires the right to write, and truncates whatever else the descriptor is for.
int effective_flags(int flags) {
    return (flags & O_TRUNC) != 0 && !writes(flags) ? (flags & ~O_ACCMODE) | O_RDWR : flags;
}

bool only_appends(int flags) {
    return (flags & O_ACCMODE) == O_WRONLY && (flags & O_APPEND) != 0;
}

}  // namespace

Status OpenFiles::may_write() const {
    if (Status changes = state_.takes_changes(); !changes) {
        return failure(std::move(changes.error()));
    }
    if (state_.draining) {
        return failure(ESHUTDOWN, "the mount is shutting down and takes no new files");
    }
    return {};
}

bool OpenFiles::wants_direct_io(int flags) const {
    // A handle that truncates or appends may go on in another version than others of its inode: they must not share
    // pages.
    const bool must_not_share = writes(flags) && (flags & (O_TRUNC | O_APPEND)) != 0;
    switch (state_.env.read.config.direct_io) {
        case DirectIo::kAlways:
            return true;
        case DirectIo::kNever:
            return must_not_share;
        case DirectIo::kAuto:
            break;
    }
    // Requests of 1 MiB cost a third of what they cost through the page cache. Readers keep the page cache: it serves
    // small reads, and one copy of a file to all ranks of a node. What an older kernel could not map, nor show to such
    // readers, goes through the page cache.
    return must_not_share || (writes(flags) && state_.env.kernel_cache.direct_io_allows_mmap());
}

pid_t OpenFiles::opener(const Caller& caller, int flags) const {
    // The kernel has no number for processes that this PID namespace does not see.
    if (caller.thread == 0 && writes(flags) && !told_of_unseen_writers_.exchange(true)) {
        log_warning(
            "a program of another PID namespace writes here: its files are published at every close of a descriptor, "
            "and a partial one may be if it is killed (set hostPID in Kubernetes, --pid host elsewhere)");
    }
    return state_.env.processes.thread_group(caller.thread).value_or(0);
}

void OpenFiles::create(NodeId parent_id, std::string name, int flags, Caller caller, Reply<CreatedFile> reply) {
    if (const Status allowed = may_write(); !allowed) {
        reply(failure(allowed.error()));
        return;
    }
    Result<CreatedFile> created = failure(EIO, "not created");
    NodePtr existing;
    const pid_t process = opener(caller, flags);
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (state_.name_changes.wait({parent_id, name}, [=, this] { create(parent_id, name, flags, caller, reply); })) {
            return;
        }
        const Result<NodePtr> parent = state_.directory(lock, parent_id);
        if (parent && state_.waits_for_left_rename(lock, *parent, [=, this](bool is_elsewhere) {
                is_elsewhere ? reply(failure(ESTALE, name + ": its directory was renamed"))
                             : create(parent_id, name, flags, caller, reply);
            })) {
            return;
        }
        Status valid;
        if (parent) {
            valid = check_new_name(state_.env.prefix, state_.nodes.path(lock, **parent), name);
        }
        if (!parent) {
            created = failure(parent.error());
        } else if (!valid) {
            created = failure(valid.error());
        } else if (const NodePtr node = state_.nodes.child(lock, *parent, name);
                   node == nullptr || !(node->is_known_here() || state_.is_fresh(lock, *node))) {
            OpenRequest request;
            request.flags = flags;
            request.opener = process;
            request.thread = caller.thread;
            created = make_file(lock, request, *parent, name);
        } else if ((flags & O_EXCL) != 0) {
            created = failure(EEXIST, name + " exists");
        } else if (node->type == FileType::kDirectory) {
            // A mkdir(2) whose caller was killed has ended.
            created = failure(EISDIR, name + " is a directory");
        } else {
            // Another thread made it between the kernel's lookup and this call, and may forget it before this one is
            // answered.
            existing = node;
            ++existing->lookups;
        }
    }
    if (existing == nullptr) {
        reply(std::move(created));
    } else {
        open(existing->id, flags, caller, [this, existing, reply](Result<OpenedFile> opened) {
            Result<CreatedFile> file = failure(EIO, "not opened");
            std::optional<HandleId> handle;
            {
                const NodeTable::Lock lock = state_.nodes.lock();
                if (opened && opened->backing != 0) {
                    // The answer to a create cannot name a backing file: the kernel looks the name up once more, and
                    // opens it.
                    handle = opened->handle;
                    file = failure(ESTALE, existing->name + " exists");
                } else if (opened) {
                    file = CreatedFile{state_.entry(lock, *existing), *opened};
                } else {
                    file = failure(std::move(opened.error()));
                }
                state_.nodes.forget(lock, existing, 1);
            }
            if (handle) {
                closes_.disown(*handle);
            }
            reply(std::move(file));
        });
    }
}

Result<CreatedFile> OpenFiles::make_file(const NodeTable::Lock& lock, OpenRequest& request, const NodePtr& parent,
                                         const std::string& name) {
    if (const Status allowed = may_write(); !allowed) {
        return failure(allowed.error());
    }
    if (const Status allowed = lookups_.may_be_taken(lock, *parent, name); !allowed) {
        return failure(allowed.error());
    }
    static_cast<void>(is_second_try(lock, request.thread, parent->id, name));
    request.node = state_.nodes.link_new(lock, parent, name, FileType::kFile);
    state_.note_names_changed(lock, *parent);
    request.node->checked = state_.env.clock.now();
    const std::string key = state_.key(lock, *request.node);
    CreatedFile file;
    HandlePtr handle;
    file.opened = add_handle(lock, request, state_.make_writer(key, request.flags, std::nullopt), nullptr, &handle);
    request.node->version->fate.made(request.opener);
    handle->has_only_truncated = (request.flags & O_TRUNC) != 0;
    file.entry = state_.entry(lock, *request.node);
    return file;
}

bool OpenFiles::waits_for_its_name(const NodeTable::Lock& /*lock*/, const Node& node, std::function<void()> run) {
    return node.linked && node.parent != nullptr &&
           state_.name_changes.wait({node.parent->id, node.name}, std::move(run));
}

// Delays an open to write while the name is being removed or renamed.
bool OpenFiles::opens_later(const NodeTable::Lock& lock, NodeId id, int flags, const Caller& caller,
                            const Reply<OpenedFile>& reply) {
    const NodePtr node = state_.nodes.find(lock, id);
    if (!writes(flags) || node == nullptr || node->parent == nullptr) {
        return false;
    }
    const NameInDirectory named{node->parent->id, node->name};
    if (node->linked && state_.waits_for_left_rename(lock, node->parent, [=, this](bool is_elsewhere) {
            is_elsewhere ? reply(failure(ESTALE, named.name + ": its directory was renamed"))
                         : open(id, flags, caller, reply);
        })) {
        return true;
    }
    return waits_for_its_name(lock, *node, [=, this] {
        bool has_its_name = false;
        {
            const NodeTable::Lock now = state_.nodes.lock();
            const NodePtr found = state_.nodes.find(now, id);
            has_its_name = found != nullptr && found->parent != nullptr && found->parent->id == named.directory &&
                           found->name == named.name;
        }
        has_its_name ? open(id, flags, caller, reply) : reply(failure(ESTALE, named.name + " was renamed"));
    });
}

void OpenFiles::open(NodeId id, int asked_flags, Caller caller, Reply<OpenedFile> reply) {
    const int flags = effective_flags(asked_flags);
    auto request = std::make_shared<OpenRequest>();
    request->flags = flags;
    request->thread = caller.thread;
    request->opener = opener(caller, flags);
    request->asked = state_.env.clock.now();
    request->pace = !writes(flags) && state_.env.processes.is_in_background(caller.thread) ? ReadPace::kBackground
                                                                                           : ReadPace::kFull;
    request->reply = std::move(reply);
    Status found;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (opens_later(lock, id, flags, caller, request->reply)) {
            return;
        }
        request->node = state_.nodes.find(lock, id);
        if (request->node != nullptr && writes(flags)) {
            note_open_to_write(lock, request);
        }
        const bool is_truncated = writes(flags) && (flags & O_TRUNC) != 0 && request->node != nullptr &&
                                  request->node->type == FileType::kFile;
        request->is_second_try =
            is_truncated && is_second_try(lock, request->thread, request->node->parent->id, request->node->name);
        if (is_truncated && !request->node->linked && !request->node->is_failed_name) {
            // Another version has got the name since the kernel looked it up.
        } else if (request->node != nullptr && is_served_as_looked_up(lock, *request)) {
            request->expected = true;
        } else if (request->node == nullptr || !request->node->linked) {
            found = failure(ESTALE, "the file is gone");
            if (request->node != nullptr) {
                // The kernel looks once more, and must not find the name of a file that failed.
                state_.failed.looked_at(state_.key(lock, *request->node));
                expect_again(lock, *request);
            }
        } else if (request->node->is_failed_name) {
            lookups_.look_at_failed_name(lock, request->node);
            found = failure(ESTALE, "the file failed, and nothing is left of it");
        } else if (request->node->type == FileType::kDirectory) {
            found = failure(EISDIR, "a directory");
        } else if (request->node->type != FileType::kFile) {
            // The kernel knows the name as a file: it has to look again.
            found = failure(ESTALE, "a symbolic link, a socket or a FIFO");
        } else {
            // A truncation may still wait: the expectation keeps readers from the page cache until it is made.
            request->expected = !is_truncated && take_expected(lock, *request->node, request->thread, writes(flags));
        }
    }
    if (found && writes(flags)) {
        found = may_write();
    }
    if (!found) {
        request->reply(failure(found.error()));
    } else if (!writes(flags)) {
        open_for_reading(request);
    } else if ((flags & O_TRUNC) != 0) {
        open_for_truncating(request);
    } else {
        open_for_writing(request);
    }
}

OpenedFile OpenFiles::add_handle(const NodeTable::Lock& lock, const OpenRequest& request,
                                 std::shared_ptr<FileWriter> writer, const std::shared_ptr<FileReader>& reader,
                                 HandlePtr* added) {
    const NodePtr& node = request.node;
    auto handle = std::make_shared<Handle>(reader, request.pace);
    handle->flags = request.flags;
    handle->node = node;
    handle->opener = request.opener;
    handle->is_by_name = request.is_by_name;
    handle->inode = node->inode;
    handle->truncated_at = (request.flags & O_TRUNC) != 0 ? ++state_.truncations : 0;
    handle->opened_at = state_.truncations;
    handle->rewrites = node->rewrites;
    handle->writer = writer;
    if (node->writer != nullptr && node->writer->readable()) {
        handle->changing = node->writer;
    } else if (writer != nullptr && writer->readable()) {
        handle->changing = writer;
    }
    node->is_lock_file = node->is_lock_file && node->open_handles > 0;
    ++node->open_handles;
    OpenedFile opened;
    // The size that is shown of a file being written is more than what can be read of it: the page cache would fill up
    // the rest, and would not see changes either. An empty file may be written at any time, in the same inode.
    const bool is_empty = writer == nullptr && (reader == nullptr || reader->size() == 0);
    handle->may_change =
        writer == nullptr &&
        (node->is_opened_to_write() || std::any_of(node->expected.begin(), node->expected.end(),
                                                   [](const ExpectedOpen& expected) { return expected.writes; }));
    // Of what is written to a file that cannot be read back the page cache would have whole pages, and zeros in the
    // others.
    const bool cannot_read_back = writer != nullptr && !writer->readable() && (request.flags & O_ACCMODE) != O_WRONLY;
    opened.direct_io = wants_direct_io(request.flags) || cannot_read_back || node->is_other_than_looked_up ||
                       node->has_uncertain_size || node->shares_inode || is_empty || handle->may_change ||
                       (node->writer != nullptr && (writer == nullptr || node->writer->dirty()));
    if (writer != nullptr) {
        ++node->writable_handles;
        if (node->writer != writer) {
            failures_.watch(node, writer, request.opener);
            node->version = std::make_shared<WrittenVersion>(handle->truncated_at);
            node->only_appended = true;
        }
        handle->version = node->version;
        handle->version->fate.opened(request.opener);
        node->only_appended = node->only_appended && (request.flags & O_APPEND) != 0;
        live_logs_.opened(lock, *node);
        const bool goes_on = node->writer == writer && writer->dirty();
        node->writer = std::move(writer);
        node->written = state_.env.clock.wall_now();
        if (!goes_on) {
            node->opened_to_write = state_.env.clock.now();
        }
    }
    if (handle->writer == nullptr) {
        pass_through(lock, request, reader, *handle, opened);
    }
    if (reader != nullptr && !opened.direct_io && opened.backing == 0) {
        // Without an ETag nothing says of which version the pages are.
        const bool is_same = !node->pages_etag.empty() && node->pages_etag == reader->object().etag;
        node->has_only_its_pages = node->has_only_its_pages && is_same;
        opened.keep_cache = node->has_only_its_pages;
        handle->dropped_pages = !opened.keep_cache;
        // The kernel drops the pages where it is not to keep them; but handles that have read from them remain.
        node->pages_were_read = node->pages_were_read && (opened.keep_cache || node->cached_handles > 0);
        node->pages_etag = reader->object().etag;
    }
    handle->is_cached = handle->writer == nullptr && !opened.direct_io;
    node->cached_handles += handle->is_cached ? 1 : 0;
    if (added != nullptr) {
        *added = handle;
    }
    opened.handle = handles_.add(std::move(handle));
    return opened;
}

// Another mount has replaced what is being written here: the name stays with the writer, which is yet to publish.
OpenedFile OpenFiles::add_handle_on_other_version(const NodeTable::Lock& lock, const OpenRequest& request,
                                                  const std::shared_ptr<FileReader>& reader) {
    HandlePtr handle;
    OpenedFile opened = add_handle(lock, request, nullptr, nullptr, &handle);
    handle->changing = nullptr;
    handle->is_of_another_mount = handle->has_read = true;
    ++request.node->readers;
    const MutexLock guard(handle->mutex);
    handle->stream = reader->open_stream(request.pace);
    handle->reader = reader;
    return opened;
}

// --- writing

// Whether the file may have been closed: the writer has failed, or all that was written to it in order is saved. An
// open after that close must share neither the failure, nor a writer that cannot read and change what it has saved.
bool OpenFiles::may_be_released(const FileWriter& writer, const OpenRequest& request) {
    const bool is_saved = !writer.dirty() && !writer.readable() && !only_appends(request.flags);
    return request.waits < kReleaseWaits && (is_saved || writer.failed());
}

void OpenFiles::open_for_writing(const OpenRequestPtr& request) {
    std::optional<Result<OpenedFile>> answer;
    bool waits = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        request->asked = state_.env.clock.now();
        request->key = state_.key(lock, *node);
        request->etag = node->committed ? node->committed->etag : "";
        if (node->writer != nullptr) {
            if (may_be_released(*node->writer, *request)) {
                waits = true;
            } else if (const std::optional<Error> failed = node->writer->failed()) {
                answer = failure(*failed);
            } else if (node->has_its_name_here()) {
                answer = add_handle(lock, *request, node->writer, nullptr);
            }
            // Else all is saved, and another mount may have replaced it since.
        }
    }
    if (waits) {
        waits_.after(release_wait(request->waits++), [this, request] { open_for_writing(request); });
        return;
    }
    if (answer) {
        request->reply(std::move(*answer));
        return;
    }
    state_.env.store.head(request->key,
                          [this, request](Result<ObjectInfo> object) { base_found(request, std::move(object)); });
}

void OpenFiles::base_found(const OpenRequestPtr& request, Result<ObjectInfo> object) {
    Result<OpenedFile> answer = failure(EIO, "not opened");
    bool ask_again = false;
    bool takes_version = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        if (node->has_its_name_here() || is_outdated(lock, *request)) {
            ask_again = true;
        } else if (!object) {
            answer = not_found_or(lock, node, std::move(object.error()));
        } else if (!node->linked) {
            expect_again(lock, *request, object->etag);
            answer = failure(ESTALE, "the file is gone");
        } else if ((!node->committed || node->committed->etag != object->etag) && may_take_version(lock, *request) &&
                   ++request->attempts < kMostAttempts) {
            takes_version = true;
        } else if (!node->committed || node->committed->etag != object->etag) {
            answer = give_new_node(lock, node, version_of(*object, content_of(*object, object->size)), nullptr,
                                   expectation(*request));
            if (!state_.contents.known(*object)) {
                // The lookup that follows asks for its size.
                state_.nodes.child(lock, node->parent, node->name)->checked = SteadyTime{};
            }
        } else if (node->writer != nullptr) {
            node->was_there(request->asked);
            answer = add_handle(lock, *request, node->writer, nullptr);
        } else if (const Status allowed = may_write(); !allowed) {
            // The mount may have begun to end: it waits for those that have a writer by now, and for no other.
            answer = failure(allowed.error());
        } else if (const Status sound = state_.env.codec.check_description(*object); !sound) {
            answer = failure(sound.error());
        } else {
            node->was_there(request->asked);
            auto writer =
                state_.make_writer(state_.key(lock, *node), request->flags, committed_object(*node->committed));
            // A handle that has not read yet can see every change; appended bytes are not readable before a commit.
            const bool is_read = writer->readable() ? node->is_read() : node->open_handles > 0;
            if (node->has_uncertain_size && !request->expected) {
                answer = give_new_node(lock, node, *node->committed, node->reader, expectation(*request));
            } else if ((is_read && !request->expected) || node->passes_through()) {
                answer = give_writers_node(lock, node, expectation(*request), request->flags);
            } else {
                // Expected, beside those that had it open under another name: they go on with pages of their version.
                node->has_uncertain_size = node->has_uncertain_size || (node->cached_handles > 0 && node->is_read());
                answer = add_handle(lock, *request, std::move(writer), nullptr);
            }
        }
    }
    if (takes_version) {
        state_.contents.find_described(*object, [this, request, found = *object](Result<ObjectContent> content) {
            write_version_found(request, found, std::move(content));
        });
    } else if (ask_again) {
        open_for_writing(request);
    } else {
        request->reply(std::move(answer));
    }
}

void OpenFiles::write_version_found(const OpenRequestPtr& request, const ObjectInfo& object,
                                    Result<ObjectContent> content) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        // A version that could not be read, or is no file, is found once more.
        if (content && content->type == request->node->type && may_take_version(lock, *request)) {
            take_version(lock, *request, version_of(object, *content), nullptr);
        }
    }
    open_for_writing(request);
}

}  // namespace ckptfs::fs
