// SPDX-License-Identifier: Apache-2.0
// Opening to read, reads on an open handle, and what read-only handles see of a writer's changes meanwhile.
//
// A handle that has read something keeps that version: a file that others read is written under a node of its own
// (give_writers_node), so that neither its pages nor its size are the readers'. A handle that opens a file open for
// changes, or had not read yet, sees the changes as they are made, as on a local disk: the node has one content then,
// the writer's, before and after its commits.
//
// Appending changes nothing that was read. Those that have the file open follow it (Node::grows_as): each commit drops
// what the kernel has of their node, above all the page in which the file ended and that is zeros from there on, and
// only then shows the new size. After that the kernel gets no further notice: if a notice overtakes an answer, the
// kernel gives that answer's size to fstat(2) without keeping it, and a mapping of that size would end in SIGBUS.
#include <fcntl.h>

#include <utility>

#include "ckptfs/log.h"
#include "fs/files/open_files.h"
#include "read/block_cache.h"

namespace ckptfs::fs {

namespace {

// For a file that is committed again and again.
constexpr int kMostReopens = 20;

Failure cannot_read_back() {
    return failure(EOPNOTSUPP, "what is being written cannot be read before it is closed or synced");
}

}  // namespace

void OpenFiles::read(HandleId id, std::uint64_t offset, std::size_t size, Reply<Payload> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr) {
        reply(failure(EBADF, "not an open file"));
        return;
    }
    if (handle->writer != nullptr && handle->node->has_dropped_writes) {
        reply(cannot_read_back());
    } else if (is_unreadable(*handle)) {
        handle->writer->size() == 0 ? reply(Payload()) : reply(cannot_read_back());
    } else {
        Reply<Payload> noted = noted_across_end(handle->node, offset + size, std::move(reply));
        read_what_is_seen(std::make_shared<Reading>(Reading{handle, offset, size, 0, std::move(noted)}));
    }
}

void OpenFiles::read_what_is_seen(const std::shared_ptr<Reading>& reading) {
    const std::shared_ptr<FileWriter> writer = changing(*reading->handle);
    if (writer == nullptr) {
        read_with(reading);
        return;
    }
    const auto answer = [this, reading, asked = writer.get()](Result<Payload> data) {
        const bool gone = !data && data.error().errno_value == ESTALE;
        // A writer that is saved and closed is not notified of a rename, which takes away the object that it reads.
        if (gone && reading->handle->writer == nullptr && reading->reopens < kMostReopens &&
            changing(*reading->handle).get() != asked) {
            ++reading->reopens;
            read_what_is_seen(reading);
            return;
        }
        counters_.read(data ? data->size() : 0);
        reading->reply(std::move(data));
    };
    writer->read(reading->offset, reading->size, answer);
}

// Whether the handle has joined a writer that keeps nothing to read. The version before would not show what was
// changed, and a mapping would show it at the size that the file has by now; what was only appended leaves that version
// as it is.
bool OpenFiles::is_unreadable(const Handle& handle) {
    if (handle.writer == nullptr || handle.writer->readable() || !handle.writer->dirty()) {
        return false;
    }
    const bool wrote = (handle.flags & O_APPEND) == 0 && handle.noted != VersionFate::kNever;
    const VersionState version = handle.version->fate.state(kUnseenProcess, handle.opener);
    return wrote || handle.truncated_at != 0 || version.resized || (version.unsaved && !version.only_appended);
}

std::shared_ptr<FileWriter> OpenFiles::changing(Handle& handle) {
    const NodeTable::Lock lock = state_.nodes.lock();
    if (handle.writer != nullptr) {
        if (handle.changing == nullptr) {
            // The handle reads from the bucket, where others, or this handle, may have saved since.
            forget_earlier_reader(lock, handle);
        }
        return handle.changing;
    }
    Node& node = *handle.node;
    if (!handle.has_read) {
        begin_reading(lock, handle);
    } else if (handle.may_change && handle.changing == nullptr && node.writer != nullptr && node.writer->readable() &&
               !node.version->fate.left_by_killed_writer()) {
        handle.changing = node.writer;
    }
    if (handle.changing == nullptr || node.removed) {
        return handle.changing;
    }
    if (handle.changing != node.writer && !handle.changing->dirty() && !handle.changing->failed()) {
        // All of it is saved and closed: the handle reads that version from the bucket, wherever a rename moves it.
        handle.changing = nullptr;
        handle.has_read_changes = false;
        handle.rewrites = node.rewrites;
        forget_earlier_reader(lock, handle);
        return nullptr;
    }
    // Before the first change, and after one that failed, the handle reads what it opened, with a window of its own.
    // Not if it has read changes: to its reader the file would end, or go on, as another one.
    const MutexLock guard(handle.mutex);
    const bool is_changed = handle.changing->dirty() && !handle.changing->failed();
    const bool as_opened = !is_changed && !handle.has_read_changes && handle.reader != nullptr && node.committed &&
                           handle.reader->object().etag == node.committed->etag;
    handle.has_read_changes = handle.has_read_changes || is_changed;
    return as_opened ? nullptr : handle.changing;
}

void OpenFiles::forget_earlier_reader(const NodeTable::Lock& /*lock*/, Handle& handle) {
    const Node& node = *handle.node;
    const MutexLock guard(handle.mutex);
    if (handle.reader != nullptr && node.committed && handle.reader->object().etag != node.committed->etag) {
        handle.reader = nullptr;
        handle.stream = nullptr;
    }
}

void OpenFiles::begin_reading(const NodeTable::Lock& lock, Handle& handle) {
    Node& node = *handle.node;
    handle.has_read = true;
    handle.rewrites = node.rewrites;
    ++node.readers;
    // A mapping fills pages by a descriptor with direct_io, too.
    node.pages_were_read = true;
    const bool is_changed = node.writer != nullptr && node.writer->readable() && !node.writer->failed() &&
                            !node.version->fate.left_by_killed_writer();
    handle.changing = is_changed ? node.writer : nullptr;
    if (!is_changed) {
        // The file was changed and closed since the handle was opened; its name may have gone, or be a later version's,
        // since.
        forget_earlier_reader(lock, handle);
        const MutexLock guard(handle.mutex);
        node.has_only_its_pages = node.has_only_its_pages || (handle.dropped_pages && handle.reader != nullptr &&
                                                              handle.reader->object().etag == node.pages_etag);
    }
}

void OpenFiles::read_with(const std::shared_ptr<Reading>& reading) {
    const HandlePtr& handle = reading->handle;
    std::shared_ptr<FileReader> reader;
    std::shared_ptr<ReadStream> stream;
    {
        MutexLock lock(handle->mutex);
        reader = handle->reader;
        stream = handle->stream;
    }
    if (reader == nullptr || reading->offset + reading->size > reader->size()) {
        if (reopen_and_read(reading, reader)) {
            return;
        }
        if (reader == nullptr && is_pristine(*handle)) {
            reading->reply(Payload());
            return;
        }
        if (reader == nullptr) {
            reading->reply(nothing_to_read(*handle));
            return;
        }
        if (is_behind_the_end(*reading, *reader)) {
            reading->reply(failure(ESTALE, "the offset is beyond the end of the version that was opened"));
            return;
        }
        if (is_out_of_reach(*handle, *reader)) {
            // It may have grown between the two checks.
            if (reopen_and_read(reading, reader)) {
                return;
            }
            // The kernel would fill up with zeros what the file's size promises and this read lacks.
            reading->reply(
                failure(ESTALE, "the file has grown since it was opened, and was replaced or removed; open it again"));
            return;
        }
    }
    reader->read(stream, reading->offset, reading->size, [this, reading, reader](Result<Payload> data) {
        const bool gone = !data && data.error().errno_value == ESTALE;
        if (gone && reading->handle->writer == nullptr && reading->reopens < kMostReopens &&
            changing(*reading->handle) != nullptr) {
            // The writer beside it has made and saved its first change meanwhile.
            ++reading->reopens;
            read_what_is_seen(reading);
            return;
        }
        if (gone && reopen_and_read(reading, reader)) {
            return;
        }
        if (gone && reading->reopens < kMostReopens) {
            ++reading->reopens;
            read_after_commit(reading, reader, reader->object().key, std::move(data.error()));
            return;
        }
        if (data) {
            counters_.read(data->size());
            reading->handle->read_until = reading->offset + data->size();
            reading->handle->last_read = state_.env.clock.now();
        } else {
            log_error(escaped(data.error().message));
        }
        reading->reply(std::move(data));
    });
}

bool OpenFiles::is_pristine(const Handle& handle) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    if (node.lost_size) {
        return false;
    }
    // What was saved, or has grown, since the handle was opened may be out of reach: that is not empty.
    return node.writer != nullptr ? node.writer->pristine() : !node.committed || node.committed->size == 0;
}

// The kernel reads ahead to where it takes the end to be. It learns the end from the answer that reaches it, unless one
// from behind the end comes first: then it fills up with zeros. An error there concerns only a caller that asks for
// these bytes.
bool OpenFiles::is_behind_the_end(const Reading& reading, const FileReader& reader) {
    const NodeTable::Lock lock = state_.nodes.lock();
    return reading.handle->is_cached && reading.offset > reader.size();
}

// Whether what was opened has grown since, and has lost its name: what was added cannot be fetched any more.
bool OpenFiles::is_out_of_reach(Handle& handle, const FileReader& reader) {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    return !node.linked && node.committed && node.committed->size > reader.size() && !handle.is_of_another_mount &&
           !is_of_earlier_version(lock, handle);
}

Failure OpenFiles::nothing_to_read(const Handle& handle) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const Node& node = *handle.node;
    if (node.lost_size || (node.writer != nullptr && node.writer->failed() && !node.committed)) {
        return failure(ESTALE, "the file was not saved");
    }
    // What was committed was removed with the name.
    if (node.removed) {
        return failure(ESTALE, "the file was removed");
    }
    return node.writer != nullptr
               ? cannot_read_back()
               : failure(ESTALE, "the version that was opened was replaced or removed; open the file again");
}

bool OpenFiles::is_of_earlier_version(const NodeTable::Lock& /*lock*/, Handle& handle) {
    if (handle.writer != nullptr || !handle.has_read || handle.rewrites == handle.node->rewrites) {
        return false;
    }
    const MutexLock guard(handle.mutex);
    // An empty one may grow.
    return handle.reader != nullptr && handle.reader->size() > 0;
}

// The same bytes may have got another key by a rename on this mount, and more behind them by appending, since `reader`
// was opened. False where there is nothing newer.
bool OpenFiles::reopen_and_read(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader) {
    std::string key;
    std::string etag;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const Node& own = *reading->handle->node;
        const Node& node = own.grows_as != nullptr ? *own.grows_as : own;
        const bool may_be_there = node.linked || node.has_moved || (reader == nullptr && !node.removed);
        // Without an ETag nothing is in the bucket: it was truncated before any commit.
        if (!may_be_there || is_of_earlier_version(lock, *reading->handle) || reading->handle->is_of_another_mount ||
            !node.committed || node.committed->etag.empty()) {
            return false;
        }
        key = state_.key(lock, node);
        etag = node.committed->etag;
        reading->rewrites = own.rewrites;
    }
    if (reading->reopens == kMostReopens ||
        (reader != nullptr && reader->object().key == key && reader->object().etag == etag)) {
        return false;
    }
    ++reading->reopens;
    FileReader::open(state_.env.read, key, etag, false,
                     [this, reading, key](auto opened) { reopened(reading, key, std::move(opened)); });
    return true;
}

void OpenFiles::reopened(const std::shared_ptr<Reading>& reading, const std::string& key,
                         Result<std::shared_ptr<FileReader>> opened) {
    if (opened) {
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            // A handle that found the file empty reads this version from now on, and follows what is appended to it.
            reading->handle->rewrites = reading->rewrites;
            const MutexLock guard(reading->handle->mutex);
            reading->handle->stream = (*opened)->open_stream(reading->handle->pace);
            reading->handle->reader = std::move(*opened);
        }
        read_with(reading);
    } else if (opened.error().errno_value != ESTALE || reading->reopens == kMostReopens) {
        reading->reply(failure(std::move(opened.error())));
    } else {
        read_after_commit(reading, nullptr, key, std::move(opened.error()));
    }
}

// The next commit or rename by this mount may have been made, and not be noted yet: tries again after it.
void OpenFiles::read_after_commit(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader,
                                  const std::string& key, Error error) {
    const KeyOrder::Place place = state_.key_order.enter({key});
    state_.key_order.when_first(place, [this, reading, reader, place, error = std::move(error)] {
        state_.key_order.leave(place);
        if (!reopen_and_read(reading, reader)) {
            log_error(escaped(error.message));
            reading->reply(failure(error));
        }
    });
}

// --- opening

void OpenFiles::give_up_tables() {
    {
        // Freed without the lock.
        std::vector<std::shared_ptr<FileReader>> idle;
        const NodeTable::Lock lock = state_.nodes.lock();
        idle = state_.nodes.take_idle_readers(lock);
    }
    state_.env.read.cache.forget_closed();
}

void OpenFiles::open_for_reading(const OpenRequestPtr& request) {
    std::optional<Result<OpenedFile>> answer;
    std::shared_ptr<FileReader> known;
    std::string key;
    std::string etag;
    bool known_empty = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        request->asked = state_.env.clock.now();
        key = request->key = state_.key(lock, *node);
        request->etag = node->committed ? node->committed->etag : "";
        if (node->writer != nullptr && node->writer->dirty()) {
            if (node->writer->readable() && !node->writer->failed() && !node->version->fate.left_by_killed_writer()) {
                answer = add_handle(lock, *request, nullptr, nullptr);
            } else if (node->writer->pristine() && !node->writer->failed() &&
                       (!node->committed || node->committed->etag.empty())) {
                // A lock file: there is nothing to read yet.
                answer = add_handle(lock, *request, nullptr, nullptr);
            } else if (node->writer->pristine() && !node->writer->failed() && node->committed->size == 0) {
                known_empty = true;
                etag = node->committed->etag;
            } else if (!node->committed) {
                answer = failure(EBUSY, key + " is being written; it can be read once it is closed");
            }
            // Else the bucket's version is opened: another mount may have replaced the version that this writer
            // replaces.
        } else if (request->expected && node->reader != nullptr) {
            answer = add_handle(lock, *request, nullptr, node->reader);
        } else if (request->is_gone) {
            // Opens whichever version has the name.
        } else if (node->reader != nullptr) {
            known = node->reader;
            etag = known->object().etag;
        } else if (node->committed && node->committed->stored_size == 0) {
            known_empty = true;
            etag = node->committed->etag;
        }
    }
    if (answer) {
        request->reply(std::move(*answer));
    } else if (known != nullptr || known_empty) {
        // All its bytes are known or may be in memory: ask only whether this version still has the name.
        state_.env.store.head(key, [this, request, known, key, etag](Result<ObjectInfo> object) {
            if (!object) {
                reader_opened(request, failure(std::move(object.error())));
            } else if (known != nullptr && object->size == known->object().size &&
                       is_same_version(object->etag, object->last_modified, known->object())) {
                known->is_there();
                reader_opened(request, known);
            } else {
                const bool same_and_empty = known == nullptr && object->etag == etag && object->size == 0;
                FileReader::open(state_.env.read, key, same_and_empty ? etag : "", same_and_empty,
                                 [this, request](auto reader) { reader_opened(request, std::move(reader)); });
            }
        });
    } else {
        FileReader::open_latest(state_.env.read, key, request->etag,
                                [this, request](auto reader) { reader_opened(request, std::move(reader)); });
    }
}

void OpenFiles::reader_opened(const OpenRequestPtr& request, Result<std::shared_ptr<FileReader>> reader) {
    if (reader && asks_for_backing(*request, *reader)) {
        ask_for_backing(request, *reader);
        return;
    }
    Result<OpenedFile> answer = failure(EIO, "not opened");
    bool ask_again = false;
    bool is_damaged = false;
    std::string commits_to;
    std::shared_ptr<FileWriter> settles;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr& node = request->node;
        if (is_outdated(lock, *request)) {
            ask_again = true;
        } else if (!reader && reader.error().errno_value == ESTALE && (node->linked || request->expected) &&
                   ++request->attempts < kMostAttempts) {
            // The kernel looks again once only, and that is needed for the node of the version that is there.
            ask_again = request->is_gone = true;
        } else if (!reader) {
            answer = not_found_or(lock, node, std::move(reader.error()));
        } else if (node->committed && node->committed->size == (*reader)->size() &&
                   is_same_version(node->committed->etag, node->committed->modified, (*reader)->object())) {
            node->reader = *reader;
            node->was_there(request->asked);
            const bool is_to_look_again = node->has_uncertain_size && node->linked && node->writer == nullptr;
            answer = is_to_look_again && !request->expected
                         ? give_new_node(lock, node, *node->committed, *reader, expectation(*request))
                         : Result<OpenedFile>(add_handle(lock, *request, nullptr, *reader));
        } else if (node->committed && !node->committed->etag.empty() &&
                   node->committed->etag == (*reader)->object().etag && !std::exchange(request->is_read_anew, true)) {
            // A version has one size: the node's, or the reader's, came damaged; or its metadata has changed.
            node->reader = nullptr;
            node->forget_pages();
            ask_again = is_damaged = true;
        } else if (node->linked && node->writer != nullptr && node->is_live_log && node->writer->may_have_committed() &&
                   !std::exchange(request->is_settled, true)) {
            settles = node->writer;
        } else if (node->linked && node->is_being_changed() && ++request->attempts < kMostAttempts) {
            // A version that this node's writer is committing just now; the reply is not here yet.
            commits_to = (*reader)->object().key;
        } else if (node->linked && node->is_being_changed()) {
            answer = add_handle_on_other_version(lock, *request, *reader);
        } else if (request->expected && !node->removed && node->reader != nullptr && node->open_handles > 0) {
            // Another caller was faster.
            answer = add_handle(lock, *request, nullptr, node->reader);
        } else if (may_take_version(lock, *request)) {
            answer = change_node(lock, *request, *reader);
        } else if (node->linked) {
            answer = give_new_node(lock, node, version_read_by(**reader), *reader, expectation(*request));
        } else {
            expect_again(lock, *request, (*reader)->object().etag);
            answer = failure(ESTALE, "the file is gone");
        }
    }
    if (is_damaged) {
        // The reader's table is not used again.
        reader = failure(EIO, "of another size");
        state_.env.read.cache.forget_closed();
    }
    if (settles != nullptr) {
        commit_in_order(request->node, settles, CommitReason::kPublish,
                        [this, request](const Status& /*logged*/) { open_for_reading(request); });
    } else if (!commits_to.empty()) {
        const KeyOrder::Place place = state_.key_order.enter({commits_to});
        state_.key_order.when_first(place, [this, request, place] {
            state_.key_order.leave(place);
            open_for_reading(request);
        });
    } else if (ask_again) {
        open_for_reading(request);
    } else {
        request->reply(std::move(answer));
    }
}

ObjectVersion OpenFiles::version_read_by(const FileReader& reader) {
    const ObjectInfo& object = reader.object();
    const ObjectContent content = content_of(object, reader.size());
    state_.contents.remember(object.key, object.etag, content);
    return version_of(object, content);
}

Result<OpenedFile> OpenFiles::change_node(const NodeTable::Lock& lock, OpenRequest& request,
                                          const std::shared_ptr<FileReader>& reader) {
    const ObjectVersion version = version_read_by(*reader);
    if (version.type != request.node->type) {
        return give_new_node(lock, request.node, version, reader, expectation(request));
    }
    take_version(lock, request, version, reader);
    return add_handle(lock, request, nullptr, reader);
}

bool OpenFiles::is_outdated(const NodeTable::Lock& lock, OpenRequest& request) const {
    const Node& node = *request.node;
    const bool is_another =
        (node.committed && node.committed->etag != request.etag) || state_.key(lock, node) != request.key;
    return node.linked && is_another && ++request.attempts < kMostAttempts;
}

}  // namespace ckptfs::fs
